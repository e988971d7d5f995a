package main

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/dray-dev/dray/internal/wire"
)

// dialTimeout bounds the way to the daemon's socket, after which its word on stdin counts.
const dialTimeout = 4 * time.Second

// dial reaches the daemon's socket and proves the secret, both ways.
func dial(d wire.DialTarget) (*wire.Socket, error) {
	nonce, err := newNonce()
	if err != nil {
		return nil, err
	}
	file, err := connect(d.Path)
	if err != nil {
		return nil, fmt.Errorf("dialing %s: %w", d.Path, err)
	}
	socket, err := wire.NewSocket(file, true)
	if err == nil {
		err = socket.SetDeadline(time.Now().Add(dialTimeout))
	}
	if err == nil {
		err = wire.AuthenticateDaemon(socket, d.Secret, nonce)
	}
	if err == nil {
		err = socket.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return socket, nil
}

// newNonce reads the kernel's device, because package crypto/rand would be a tenth of this program.
func newNonce() ([]byte, error) {
	f, err := os.Open("/dev/urandom")
	if err != nil {
		return nil, fmt.Errorf("opening the source of randomness: %w", err)
	}
	defer func() { _ = f.Close() }()
	nonce := make([]byte, wire.SecretSize)
	if _, err := io.ReadFull(f, nonce); err != nil {
		return nil, fmt.Errorf("reading the source of randomness: %w", err)
	}
	return nonce, nil
}

// connect gives a polled file. It waits for as long as dialTimeout where the daemon has many dialers.
func connect(path string) (*os.File, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	bound := syscall.NsecToTimeval(dialTimeout.Nanoseconds())
	if err = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &bound); err == nil {
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
	}
	if err != nil {
		_ = syscall.Close(fd)
		return nil, err
	}
	return polled(fd, "daemon"), nil
}
