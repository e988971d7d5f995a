// Package processtest makes a test binary its own supervisor, so that tests need no other program
// to start processes with. Only tests import it.
package processtest
