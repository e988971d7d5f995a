package python

import "embed"

// sources has the Python of the workers, and prepare.py, which finds and makes virtual
// environments. Workers of both runtimes load values.py and core.py, in this order, as the modules
// _dray_values and _dray_core, and the runtime container threads.py after them. Their code has the
// file names "<dray values.py>", "<dray core.py>" and so on.
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
