package wire

// Encode returns a message as bytes.
var Encode = encode
