// Package strictjson decodes requests and encodes responses.
//
// A request that could be read in two ways is refused: duplicate names, unknown members, null,
// invalid UTF-8, lone surrogates, NaN and anything after the value. The error has a pointer to the
// violation. All responses have one form.
package strictjson
