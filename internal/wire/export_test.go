package wire

// Encode is what a message is as bytes.
var Encode = encode
