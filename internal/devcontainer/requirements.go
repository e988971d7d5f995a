package devcontainer

import (
	"regexp"
	"strconv"
)

// requirements are the largest that any entry has.
func requirements(entries []entry, property string) any {
	var cpus, memory, storage float64
	var gpu any
	for _, e := range entries {
		r, _ := e[property].(entry)
		count, _ := r["cpus"].(float64)
		cpus = max(cpus, count)
		memory = max(memory, bytesOf(r["memory"]))
		storage = max(storage, bytesOf(r["storage"]))
		gpu = mergeGPU(gpu, r["gpu"])
	}
	if cpus == 0 && memory == 0 && storage == 0 && !isTruthy(gpu) {
		return nil
	}
	out := entry{"cpus": cpus}
	setBytes(out, "memory", memory)
	setBytes(out, "storage", storage)
	if gpu != nil {
		out["gpu"] = gpu
	}
	return out
}

// mergeGPU takes what there is of two demands; two demands are a firm one for the larger of both.
func mergeGPU(a, b any) any {
	switch {
	case a == nil || a == false:
		return b
	case b == nil || b == false:
		return a
	case a == "optional" && b == "optional":
		return a
	}
	first, _ := a.(entry)
	second, _ := b.(entry)
	out := entry{}
	firstCores, _ := first["cores"].(float64)
	secondCores, _ := second["cores"].(float64)
	if cores := max(firstCores, secondCores); cores != 0 {
		out["cores"] = cores
	}
	setBytes(out, "memory", max(bytesOf(first["memory"]), bytesOf(second["memory"])))
	return out
}

func setBytes(out entry, name string, n float64) {
	if n != 0 {
		out[name] = strconv.FormatFloat(n, 'f', -1, 64)
	}
}

var byteSize = regexp.MustCompile(`^(\d+)([tgmk]b)?$`)

// bytesOf reads "8gb"; what is no size counts nothing.
func bytesOf(v any) float64 {
	text, _ := v.(string)
	m := byteSize.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0
	}
	units := map[string]float64{"": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}
	return n * units[m[2]]
}
