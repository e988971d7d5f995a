// Package jsonc reads devcontainer.json with the error-tolerant rules of @devcontainers/cli. A test
// compares the two on thousands of broken documents: a stricter parser would refuse files that
// `devcontainer up` accepts, and another recovery would run a container with other settings.
//
// It skips a byte order mark, comments, superfluous commas, garbage around the value, unknown words
// and raw control characters, and tolerates missing commas, braces and quotes. The last of equal
// keys wins.
//
// It differs in three points. Size and depth have limits. A member "__proto__" is dropped, because
// in the reference it changes the object's prototype. Each byte that is not UTF-8 becomes one
// replacement character, where the reference may join several.
package jsonc
