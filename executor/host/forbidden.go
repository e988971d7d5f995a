package host

import (
	"slices"
	"strings"
)

// forbiddenEnv are variables with which a caller could run code on the host or redirect its tools
// (EX-06). docs/reference/environment.md has the source for each. PATH and HOME determine which
// program a configured tool runs.
var forbiddenEnv = []string{
	"BASH_ENV", "CDPATH", "ENV", "HOME", "IFS", "PAGER", "PATH", "PROMPT_COMMAND", "PS4", "SHELLOPTS",
	"BASHOPTS", "ZDOTDIR", "EDITOR", "VISUAL", "BROWSER", "LESSOPEN", "LESSCLOSE", "MANPAGER",
	"NODE_OPTIONS", "NODE_PATH", "PERLLIB", "RUBYOPT", "RUBYLIB", "JAVA_TOOL_OPTIONS",
	"_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH", "PHPRC", "PHP_INI_SCAN_DIR", "LUA_INIT",
	"LUA_PATH", "LUA_CPATH", "R_PROFILE", "R_PROFILE_USER", "R_ENVIRON", "R_ENVIRON_USER",
	"GOFLAGS", "GOENV", "GOTOOLCHAIN", "RUSTC", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER",
	"RUSTFLAGS", "MAKEFLAGS", "GNUMAKEFLAGS", "MAKEFILES", "GCONV_PATH", "LOCPATH", "TERMINFO",
	"OPENSSL_CONF", "OPENSSL_MODULES", "SSH_ASKPASS", "RSYNC_RSH", "CVS_RSH", "TAR_OPTIONS",
	"KUBECONFIG", "COMPOSE_FILE",
}

// forbiddenEnvPrefixes begin the names of further such variables. Bash imports functions from
// BASH_FUNC_NAME%%.
var forbiddenEnvPrefixes = []string{
	"LD_", "DYLD_", "GIT_", "DOCKER_", "BASH_FUNC_", "PYTHON", "PERL5", "LUA_INIT_", "LUA_PATH_",
	"LUA_CPATH_", "NPM_CONFIG_", "npm_config_", "CARGO_", "PIP_", "UV_", "BUNDLE_", "GEM_",
}

func isForbiddenEnv(name string) bool {
	return name == "" || strings.ContainsAny(name, "=\x00") ||
		slices.Contains(forbiddenEnv, name) ||
		slices.ContainsFunc(forbiddenEnvPrefixes,
			func(p string) bool { return strings.HasPrefix(name, p) })
}
