// Package torture holds the tests in which tools, containers and engines misbehave, with real
// processes, in real containers and on the host. A static C program, testdata/hostile.c, is the
// hostile tool; what it leaves is looked for by its program file in /proc, from outside and never
// by dray's own word, and each look proves first that it can find something.
//
//	escapes   what a tool does to outlive its timeout, and to kill those who watch it
//	limits    memory, processes, bytes
//	losses    agents, containers and engines that go away, stop or are swapped in the midst of a call
//	bare      images without anything, and without rights
//
// `go test` runs each property some twenty times. With DRAY_TEST_SOAK=1 the counts are those of
// docs/evidence, and the tests write them there; -run does one group alone. What is random prints
// its seed; DRAY_TEST_SEED repeats it.
package torture
