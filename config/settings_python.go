package config

// pythonSettings returns the keys of Python sessions.
func pythonSettings() settingDefs {
	return settingDefs{
		{
			"python.runtime", pythonRuntimeKind, "container",
			"runtime of calls that name none: `container`, with its python3; `pyodide`, in a sandbox on " +
				"the host; `null`: without the tool `python`",
		},
		{
			"python.resident", countKind(1, maxResident), "16",
			"maximum number of sessions of the runtime `container` with a process; an idle one loses " +
				"it to another session",
		},
		{"python.idle", positiveKind, "10m", "how long an idle session keeps its process"},
		{
			"python.queue", countKind(0, maxQueue), "64",
			"maximum number of calls of each runtime that wait for a session or a process",
		},
		{"python.queue_wait", durationKind, "30s", "how long they wait; then they fail with `busy`"},
		{
			"python.wall", positiveKind, "120s",
			"timeout of runs whose call has none; maximum `limits.max_timeout`",
		},
		{"python.cpu", durationKind, "0s", "maximum processor time of a run; 0s is no limit"},
		{"python.memory", sizeKind, "512MiB", "memory of the process of a session; " +
			"the runtime `pyodide` needs 192MiB"},
		{
			"python.total_memory", sizeKind, "4GiB",
			"maximum of the sessions with a process times `python.memory`: of `python.resident`, and of " +
				"`python.pyodide.resident` if Pyodide is configured; values no worse than the defaults " +
				"are accepted too",
		},
		{
			"python.permissions.fs", choiceKind[string]("none", "read", "write"), "none",
			"files that code of the runtime `pyodide` may reach, below the working directory of the call; " +
				"a call may ask for less",
		},
		{
			"python.permissions.network", listKind(hostKind), "",
			"hosts that it may send requests to: names, or `*.` and a domain, with `:PORT` for another " +
				"port than 80 and 443; never private addresses; a call may ask for less",
		},
		{
			"python.permissions.env", listKind(variableKind), "",
			"variables of the daemon that it may read; a call may ask for less",
		},
		{
			"python.pyodide.assets", absPathKind, "",
			"asset folder, with Deno, Pyodide and wheels; default below `~/.local/share/dray/python`",
		},
		{"python.pyodide.deno", absPathKind, "", "the program Deno, if it is not in the asset folder"},
		{
			"python.pyodide.resident", countKind(1, maxResident), "8",
			"maximum number of sessions with a process of Pyodide",
		},
		{
			"python.pyodide.preload", listKind(packageKind), "",
			"packages of the asset folder that each process of Pyodide imports before it is ready",
		},
		{
			"python.prepare.source_builds", booleanKind, "false",
			"`prepare` may build packages from source, which runs their code",
		},
		{
			"python.prepare.index", indexKind, "",
			"package index of `prepare`: an http, https or file URL; default https://pypi.org/simple",
		},
	}
}
