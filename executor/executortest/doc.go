// Package executortest is the contract of dray.Environment as tests: every implementation passes
// Run, and files pass RunFiles. Where an environment cannot do a thing it says so in its
// Capabilities, and the suite then asks for what is promised instead.
//
// What is random prints its seed; DRAY_TEST_SEED repeats it.
package executortest
