package python

import "embed"

// sources has the Python of the workers. values.py and core.py are of both runtimes: a worker
// loads them as the modules _dray_values and _dray_core, from code with the file names
// "<dray values.py>" and "<dray core.py>", in this order.
//
//go:embed source/*.py
var sources embed.FS

// source returns a file of sources.
func source(name string) []byte {
	text, err := sources.ReadFile("source/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return text
}
