// Package api serves dray's HTTP interface. Handlers translate requests and responses; the rules of
// a call are in internal/call, on which MCP stands beside HTTP.
//
// # Rejected requests and failed calls
//
// An invalid request gets a 4xx status and has no effect. [statusOf] maps codes to statuses. A call
// that was accepted has an id and a row in the audit log, and its response is 200 with the
// invocation, however it ended.
//
// # Huma
//
// huma registers the operations on the standard mux and generates the OpenAPI document from the Go
// types that are decoded and encoded. Decoding and errors are our own: huma's decoder accepts
// duplicate names and unknown members, which the contract refuses, and its error format is a global
// variable.
package api
