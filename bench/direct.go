package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// direct is a transport over kept connections that writes a request and reads its answer in the caller's own goroutine. The transport of
// package net/http hands both to goroutines of the connection: on few cores their changing of places costs a client as much as some servers need
// for the whole call, and the servers are what is compared.
type direct struct {
	dial func(ctx context.Context) (net.Conn, error)

	mu   sync.Mutex
	idle []*kept
}

// kept is a connection between two requests, or with one.
type kept struct {
	net.Conn
	from *bufio.Reader
	used bool
}

// RoundTrip makes one request. A kept connection that its server has closed meanwhile gives way to a new one.
func (d *direct) RoundTrip(req *http.Request) (*http.Response, error) {
	for {
		c, err := d.take(req.Context())
		if err != nil {
			return nil, err
		}
		resp, err := d.ask(c, req)
		if err == nil {
			return resp, nil
		}
		_ = c.Close()
		if !c.used || req.GetBody == nil || !gone(err) {
			return nil, err
		}
		if req.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
	}
}

// gone says that the server had closed the connection; whether the write or the read tells so is chance.
func gone(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

func (d *direct) ask(c *kept, req *http.Request) (*http.Response, error) {
	stop := context.AfterFunc(req.Context(), func() { _ = c.SetDeadline(time.Now()) })
	to := bufio.NewWriterSize(c, 16<<10)
	err := req.Write(to)
	if err == nil {
		err = to.Flush()
	}
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(c.from, req)
	}
	if err != nil {
		stop()
		return nil, err
	}
	resp.Body = &answer{ReadCloser: resp.Body, done: func(whole bool) {
		if stop() && whole && !resp.Close {
			d.put(c)
			return
		}
		_ = c.Close()
	}}
	return resp, nil
}

func (d *direct) take(ctx context.Context) (*kept, error) {
	d.mu.Lock()
	if n := len(d.idle); n > 0 {
		c := d.idle[n-1]
		d.idle = d.idle[:n-1]
		d.mu.Unlock()
		return c, nil
	}
	d.mu.Unlock()
	conn, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	return &kept{Conn: conn, from: bufio.NewReaderSize(conn, 64<<10)}, nil
}

func (d *direct) put(c *kept) {
	c.used = true
	d.mu.Lock()
	defer d.mu.Unlock()
	d.idle = append(d.idle, c)
}

// CloseIdleConnections is what http.Client asks for.
func (d *direct) CloseIdleConnections() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.idle {
		_ = c.Close()
	}
	d.idle = nil
}

// answer is a body whose connection is kept if it was read to its end.
type answer struct {
	io.ReadCloser
	done  func(whole bool)
	whole bool
}

func (a *answer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	a.whole = a.whole || err == io.EOF
	return n, err
}

func (a *answer) Close() error {
	err := a.ReadCloser.Close()
	if a.done != nil {
		a.done(a.whole)
		a.done = nil
	}
	return err
}
