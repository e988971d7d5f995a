// Package compose asks docker compose what it makes of a project that nobody trusts yet.
//
//	Read             the files that compose may read
//	Inputs.Project   its model of the project, from copies of these files
//
// Asking compose is the only way to know what it does with a project in any version. It runs with
// the copies alone, and finds no other file of the workspace.
package compose
