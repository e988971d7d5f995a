// Package shellprobe puts the question to a user's shell that a userEnvProbe is, and reads the
// answer: what its startup files make of the environment. It starts nothing itself. The agent asks
// by a process of its own, the engine's exec in its stead by another exec; what they ask and how
// they read the answer is the same.
package shellprobe
