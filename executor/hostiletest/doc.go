// Package hostiletest holds the tests in which tools, containers and engines misbehave, with real
// processes in real containers and on the host. The hostile tool is a static C program,
// testdata/hostile.c. The tests find its processes by their program file in the host's /proc, never
// by dray's own report, and check first that this finds a process that runs.
//
//	escapes   tools that try to outlive their timeout or attack their supervisor
//	limits    memory, processes, bytes
//	losses    agents, containers and engines that end, stop or are replaced during a call
//	bare      images without any file, containers without privileges
//
// `go test` checks each property some twenty times. With DRAY_TEST_SOAK=1 the counts are those of
// docs/evidence, and the tests write their rows there; -run selects a part of them. Tests with
// random input log their seed, and DRAY_TEST_SEED sets it.
package hostiletest
