// Package jsonc reads devcontainer.json as the reference reads it: with a fault-tolerant parser
// that never refuses an object for its punctuation.
//
// A byte order mark, comments, trailing, missing or doubled commas, a missing closing brace,
// garbage before or after the value, an unterminated comment or string, unknown words and raw
// control characters are all stepped over, and what remains is the value. The last of several equal
// keys wins, and keys are compared exactly. A reader that is stricter would refuse files that
// `devcontainer up` takes, and one that guesses differently would run a container with other
// settings than the reference; so the rules of this package are those of the parser in
// @devcontainers/cli, and a test compares the two on thousands of broken documents.
//
// Three things differ on purpose. Size and depth have limits. A member named "__proto__" is
// dropped: in the reference it changes the prototype of the object, which is not a value. And each
// byte that is not UTF-8 becomes one replacement character, where the reference may join several.
package jsonc
