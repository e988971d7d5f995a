package wire

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// Time in which this side was stopped does not count as silence of the peer (EX-21).
func TestLivenessMonitor(t *testing.T) {
	type look struct {
		after   time.Duration
		heard   bool
		writing int64
	}
	const second = time.Second
	for name, c := range map[string]struct {
		looks           []look
		silent, stalled time.Duration
	}{
		"nothing comes": {
			looks:  []look{{after: second}, {after: second}, {after: second}},
			silent: 3 * second,
		},
		"a frame comes": {looks: []look{
			{after: second},
			{after: second, heard: true},
			{after: second},
		}, silent: second},
		"this side is a little late": {
			looks:  []look{{after: second}, {after: 1500 * time.Millisecond}},
			silent: 2500 * time.Millisecond,
		},
		"this side was stopped": {
			looks:  []look{{after: second}, {after: time.Hour}},
			silent: 3 * second,
		},
		"stopped, and a frame lay": {looks: []look{
			{after: time.Hour},
			{after: time.Millisecond, heard: true},
		}},
		"starved, look for look": {
			looks:  []look{{after: time.Minute}, {after: time.Minute}},
			silent: 4 * second,
		},
		"one frame is written": {looks: []look{
			{after: second, writing: 7},
			{after: second, writing: 7},
			{
				after:   second,
				writing: 7,
			},
		}, silent: 3 * second, stalled: 2 * second},
		"one after the other": {looks: []look{
			{after: second, writing: 7},
			{after: second, writing: 8},
			{after: second, writing: 9},
		}, silent: 3 * second},
		"one, and then none": {looks: []look{
			{after: second, writing: 7},
			{after: second, writing: 7},
			{after: second},
		}, silent: 3 * second},
		"stopped while one is written": {looks: []look{
			{after: second, writing: 7},
			{after: time.Hour, writing: 7},
		}, silent: 3 * second, stalled: 2 * second},
	} {
		t.Run(name, func(t *testing.T) {
			a := livenessMonitor{interval: second}
			var now time.Duration
			for _, l := range c.looks {
				now += l.after
				a.observe(now, l.heard, l.writing)
			}
			if a.silent != c.silent || a.writeStalled != c.stalled {
				t.Errorf("silent for %s, stalled for %s, want %s and %s", a.silent, a.writeStalled, c.silent,
					c.stalled)
			}
		})
	}
}

// A peer that reads pings and sends nothing ends the connection after 1 to 1.25 leases (EX-21).
func TestPeerTimeoutIsTimely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		go func() {
			ping := make([]byte, headerSize)
			for {
				if _, err := b.Read(ping); err != nil {
					return
				}
			}
		}()
		const lease = 30 * time.Second
		begun := time.Now()
		err := NewMux(a, Config{MaxMessage: 1, Lease: lease}).Run()
		if took := time.Since(begun); !errors.Is(err, ErrPeerTimeout) || took < lease ||
			took > lease*5/4 {
			t.Errorf("after %s: %v", took, err)
		}
	})
}
