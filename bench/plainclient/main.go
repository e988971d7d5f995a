// Command plainclient makes one call by a daemon's HTTP interface: what `dray exec` is compared
// with. It prints the call's stdout and exits with its exit code.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
)

// main takes the path of the daemon's socket and the body of the request.
func main() {
	socket, body := os.Args[1], []byte(os.Args[2])
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial}}
	resp, err := client.Post( //nolint:noctx // it ends with the program
		"http://dray/v1/invocations", "application/json", bytes.NewReader(body))
	var record struct {
		ExitCode *int `json:"exit_code"`
		Stdout   struct{ Text string }
	}
	if err == nil {
		err = json.NewDecoder(resp.Body).Decode(&record)
		_ = resp.Body.Close()
	}
	if err != nil || record.ExitCode == nil {
		fmt.Fprintln(os.Stderr, "plainclient:", err)
		os.Exit(1)
	}
	fmt.Print(record.Stdout.Text)
	os.Exit(*record.ExitCode)
}
