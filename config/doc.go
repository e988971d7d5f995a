// Package config merges flags, DRAY_* variables, a YAML file and the defaults into one validated
// [Config], or returns all problems at once.
//
// Every setting, and every key of a container, plan or tool, is a row of a table (settings.go): its
// key, kind of value, default and description. The tables determine the fields that values are
// decoded into, the names of the variables, the suggestions for misspelled keys, the refusal of
// unsupported keys, [Config.Settings], and the JSON Schema that [Schema] returns for editors.
//
// # Precedence
//
// A flag takes precedence over a variable, a variable over the file, the file over the default.
// viper selects among values that have their origin, so that errors can name it. viper folds keys
// to lower case. It only receives the names of settings, never names that an operator chose
// (containers, plans, variables), which are compared exactly.
//
// # Variables
//
// The variable of a setting is DRAY_ and its key in upper case, dots as underscores: limits.timeout
// is DRAY_LIMITS_TIMEOUT. An empty variable counts as unset. A list is separated by commas
// (DRAY_HOST_ROOTS=/srv/a,/srv/b) or, if an element contains a comma, a YAML or JSON list.
// Containers, plans and tools are YAML or JSON and replace those of the file:
// DRAY_CONTAINERS='{db: {id: postgres}}'.
//
// A key of a named entry has a variable too: DRAY_CONTAINERS_DB_ID is containers.db.id. It applies
// to the entry whose name is equal in upper case with everything but letters and digits as
// underscores, else to a new entry in lower case. Names of devcontainer.local_env are exact:
// DRAY_DEVCONTAINER_LOCAL_ENV_GITHUB_TOKEN is ${localEnv:GITHUB_TOKEN}.
//
// DRAY_STATE and DRAY_CONFIG name paths (see [Options]); names that begin with DRAY_TEST_ are for
// tests. Any other variable that begins with DRAY_ is refused, because it is probably misspelled.
//
// # Values
//
// Durations are Go's (90s, 1h30m, 1.5s), sizes whole bytes or KiB, MiB, GiB, TiB. Paths are
// absolute. They are cleaned here, and contain neither ".." nor NUL. YAML anchors, tags and second
// documents are refused.
package config
