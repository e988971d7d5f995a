// Package executortest is the contract suite of dray.Environment: every implementation passes Run,
// and its files pass RunFiles. If an environment lacks a capability, the suite tests what is
// promised instead.
//
// Random tests log their seed; DRAY_TEST_SEED repeats it.
package executortest
