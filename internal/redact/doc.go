// Package redact replaces secrets in what dray records, logs and returns (AU-07).
//
// A secret is a match of a configured pattern, the value of a variable whose name matches a
// configured one, or the value of an input field that the schema of its tool marks. [Rules] are
// those of a configuration; [Rules.ForCall] adds the values that one call brings. What is found is
// replaced by a mark: "[redacted:" and 16 hexadecimal digits of an HMAC-SHA-256 of the secret under
// the key of the state directory. So two marks are equal if the secrets are, and nobody without the
// key can find a secret by trying values.
//
// # What is replaced
//
// Every occurrence of a value, also as JSON, URL, base64 and hexadecimal text encodes it, and the
// matches of each pattern from left to right, each found as Perl would. Secrets that overlap get
// one mark. A pattern sees at most [MaxMatch] bytes from the beginning of a match. All this
// depends on the text alone, and not on the parts in which it arrives ([Redactor.Stream]).
package redact
