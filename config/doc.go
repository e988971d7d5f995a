// Package config turns flags, DRAY_* variables, one YAML file and the defaults into one validated
// [Config], or into all mistakes at once.
//
// Every setting has an entry in one table (keys.go): its key, its default, what it means, what may
// stand there and how its text is read. From that table follow the names of the variables, the
// suggestions for misspelled keys, the refusals of keys that dray does not support yet, what
// [Config.Settings] lists and the JSON Schema that [Schema] gives to editors.
//
// # Where a value comes from
//
// A flag goes before a variable, a variable before the file, the file before the default. viper
// decides that, over values that carry their origin, so that an error can name it. viper folds keys
// to lower case; it only ever sees the names of settings, never the names that an operator chose
// (containers, plans, variables), which are compared exactly.
//
// # Variables
//
// The variable of a setting is DRAY_ and its key in upper case, dots as underscores: limits.timeout
// is DRAY_LIMITS_TIMEOUT. A variable that is empty counts as unset. A list is written with commas
// (DRAY_HOST_ROOTS=/srv/a,/srv/b) or, where an element has a comma in it, as a YAML or JSON list;
// containers, plans and tools are written as YAML or JSON and replace what the file says:
// DRAY_CONTAINERS='{db: {id: postgres}}'.
//
// A single key of a named entry has a variable too: DRAY_CONTAINERS_DB_ID is containers.db.id. It
// goes to the entry whose name reads the same in upper case with everything but letters and digits
// as underscores; where there is none, to a new one in lower case. Names of devcontainer.local_env
// are taken as they stand: DRAY_DEVCONTAINER_LOCAL_ENV_GITHUB_TOKEN is ${localEnv:GITHUB_TOKEN}.
//
// DRAY_STATE and DRAY_CONFIG name places (see [Options]); names that begin with DRAY_TEST_ are left
// to tests. Any other variable that begins with DRAY_ is a mistake, since it is most likely a
// misspelled one.
//
// # Values
//
// Durations are Go's (90s, 1h30m, 1.5s), sizes whole bytes or KiB, MiB, GiB, TiB. Paths are
// absolute; they are cleaned once, here, and may hold neither ".." nor NUL. YAML anchors, tags and
// second documents are refused: the file says each thing once, where it stands.
package config
