package redact

import (
	"maps"
	"slices"
)

// builtins are the built-in patterns. Each begins with fixed characters, which are found fast, and
// none of them finds a second beginning within a long run of its own characters.
var builtins = map[string][]string{
	"private_key": {
		`-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----` +
			`(?:(?s:.)*?-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----` +
			`|(?:(?:\s|\\[nr])+[0-9A-Za-z+/=]{16,})*)`,
	},
	"aws": {`\bAKIA[0-9A-Z]{16}\b`, `\bASIA[0-9A-Z]{16}\b`},
	"github": {
		`\bghp_[0-9A-Za-z]{36,}`, `\bgho_[0-9A-Za-z]{36,}`, `\bghu_[0-9A-Za-z]{36,}`,
		`\bghs_[0-9A-Za-z]{36,}`, `\bghr_[0-9A-Za-z]{36,}`, `\bgithub_pat_[0-9A-Za-z_]{22,}`,
	},
	"slack": {`\bxox[abeoprs]-[0-9A-Za-z-]{10,}`, `\bxapp-[0-9A-Za-z-]{10,}`},
	"jwt":   {`\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*`},
	"authorization": {
		`\bBearer +(?P<secret>[\w.~+/-]{16,}=*)`,
		`uthorization: *(?:[Bb]earer|[Bb]asic|[Tt]oken) +(?P<secret>[\w.~+/-]+=*)`,
	},
	"url": {`://[^\s/:@"'<>\\]{0,256}:(?P<secret>[^\s/@"'<>\\]{1,256})@`},
}

// builtin returns the patterns of a name; "all" is every one.
func builtin(name string) []string {
	if name != "all" {
		return builtins[name]
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(builtins)) {
		all = append(all, builtins[name]...)
	}
	return all
}

func builtinNames() []string {
	return append([]string{"all"}, slices.Sorted(maps.Keys(builtins))...)
}
