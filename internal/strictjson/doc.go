// Package strictjson is the JSON of requests and answers. It reads a request so that it can have
// one meaning only: duplicate names, unknown members, null where a value belongs, invalid UTF-8,
// lone surrogates, NaN and anything behind the value are refused, each with a pointer to where it
// stands. It writes every answer in one form.
package strictjson
