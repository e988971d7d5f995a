package pack_test

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray/internal/pack"
)

// all has a field of each kind.
type all struct {
	Int   int
	Small int8
	Uint  uint64
	Word  uint16
	Flag  bool
	Text  string
	Bytes []byte
	When  time.Time
	Part  *part
	Parts []part
	Names []string
}

type part struct {
	Name string
	Next *part
}

const maxParts = 3

func packAll(f *pack.Fields, a *all) {
	pack.Int(f, &a.Int)
	pack.Int(f, &a.Small)
	pack.Uint(f, &a.Uint)
	pack.Uint(f, &a.Word)
	pack.Bool(f, &a.Flag)
	pack.Text(f, &a.Text)
	pack.Text(f, &a.Bytes)
	pack.Time(f, &a.When)
	pack.Optional(f, &a.Part, packPart)
	pack.List(f, &a.Parts, maxParts, packPart)
	pack.List(f, &a.Names, pack.NoLimit, pack.Text)
}

func packPart(f *pack.Fields, p *part) {
	pack.Text(f, &p.Name)
	pack.Optional(f, &p.Next, packPart)
}

func full() all {
	return all{
		Int: math.MinInt, Small: -128, Uint: math.MaxUint64, Word: math.MaxUint16, Flag: true, Text: "a\x00\xff", Bytes: []byte("b"),
		When: time.Unix(-1, 999).UTC(), Part: &part{
			Name: "x",
			Next: &part{Name: "y"},
		}, Parts: []part{{Name: "1"}, {}, {}}, Names: []string{"", "n"},
	}
}

func TestMessagesRoundTrip(t *testing.T) {
	for _, want := range []all{full(), {Bytes: []byte{}, When: time.Time{}}} {
		var got all
		if err := pack.Decode(pack.Append(nil, &want, packAll), &got, packAll); err != nil ||
			!reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

// A message that is cut or has further bytes is malformed. DecodePrefix returns further bytes.
func TestDecodeRejectsOtherLengths(t *testing.T) {
	message := full()
	b := pack.Append([]byte("before"), &message, packAll)
	if !bytes.HasPrefix(b, []byte("before")) {
		t.Errorf("Append changed the bytes before the message: %q", b)
	}
	b = b[len("before"):]
	for n := range b {
		if err := pack.Decode(b[:n], new(all), packAll); !errors.Is(err, pack.ErrMalformed) {
			t.Errorf("cut after %d of %d bytes: %v", n, len(b), err)
		}
	}
	longer := append(bytes.Clone(b), "more"...)
	if err := pack.Decode(longer, new(all), packAll); !errors.Is(err, pack.ErrMalformed) {
		t.Errorf("with further bytes: %v", err)
	}
	if rest, err := pack.DecodePrefix(longer, new(all), packAll); err != nil ||
		string(rest) != "more" {
		t.Errorf("got %q, %v", rest, err)
	}
}

func TestDecode_Malformed(t *testing.T) {
	for name, c := range map[string]struct {
		b    []byte
		read func(b []byte) error
		says string
	}{
		"a number too large for its field": {
			[]byte{0xff, 0xff, 0x7f},
			reading(pack.Int[int8]),
			"does not fit",
		},
		"an unsigned one": {
			[]byte{0xff, 0xff, 0x7f},
			reading(pack.Uint[uint16]),
			"does not fit",
		},
		"a number of more than 64 bits": {
			bytes.Repeat([]byte{0xff}, 11),
			reading(pack.Uint[uint64]), "integer",
		},
		"a number that is cut": {[]byte{0x80}, reading(pack.Int[int]), "integer"},
		"a flag of two":        {[]byte{2}, reading(pack.Bool), "a flag of 2"},
		"a text longer than the message": {
			[]byte{3, 'a', 'b'},
			reading(pack.Text[string]),
			"3 bytes, but only 2 bytes are left",
		},
		"a text of 2^63 bytes": {
			append(bytes.Repeat([]byte{0xff}, 8), 0x7f, 'a'),
			reading(pack.Text[[]byte]), "are left",
		},
		"a list longer than the message": {
			[]byte{9, 0},
			reading(strings3),
			"9 elements, but only 1 bytes are left",
		},
		"a list longer than its limit": {[]byte{4, 0, 0, 0, 0}, reading(strings3), "limit 3"},
		"a list whose second element is wrong": {
			[]byte{2, 0, 9},
			reading(strings3),
			"9 bytes, but only 0 bytes are left",
		},
	} {
		if err := c.read(c.b); !errors.Is(err, pack.ErrMalformed) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func strings3(f *pack.Fields, list *[]string) { pack.List(f, list, 3, pack.Text) }

func reading[T any](fields func(*pack.Fields, *T)) func([]byte) error {
	return func(b []byte) error { return pack.Decode(b, new(T), fields) }
}

// The first error is returned, and later fields are zero.
func TestDecodeReturnsFirstError(t *testing.T) {
	var after string
	err := pack.Decode([]byte{2, 1, 'x'}, new(bool), func(f *pack.Fields, flag *bool) {
		pack.Bool(f, flag)
		pack.Text(f, &after)
		f.Fail("a later one")
	})
	if !errors.Is(err, pack.ErrMalformed) || !strings.Contains(err.Error(), "a flag of 2") ||
		after != "" {
		t.Errorf("got %v, and later %q", err, after)
	}
}

// A type can reject a message by Fail.
func TestFail(t *testing.T) {
	positive := func(f *pack.Fields, n *int) {
		if pack.Int(f, n); *n <= 0 {
			f.Fail("%d is not above zero", *n)
		}
	}
	n := -1
	if err := pack.Decode(pack.Append(nil, &n, positive), &n, positive); !errors.Is(err,
		pack.ErrMalformed) || !strings.Contains(err.Error(), "above zero") {
		t.Errorf("got %v", err)
	}
}

// A length that exceeds the message allocates nothing.
func TestDecodeAllocatesNoClaimedLength(t *testing.T) {
	lie := append([]byte{0xff, 0xff, 0x3f}, make([]byte, 100)...) // a million elements
	if n := testing.AllocsPerRun(10, func() {
		_ = pack.Decode(lie, new([]part), func(f *pack.Fields,
			p *[]part,
		) {
			pack.List(f, p, pack.NoLimit, packPart)
		})
	}); n > 20 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzDecode checks that a decoded message is the same after encoding and decoding it.
func FuzzDecode(f *testing.F) {
	message := full()
	f.Add(pack.Append(nil, &message, packAll))
	f.Add(pack.Append(nil, &all{}, packAll))
	f.Fuzz(func(t *testing.T, input []byte) {
		var got, again all
		if err := pack.Decode(input, &got, packAll); err != nil {
			if !errors.Is(err, pack.ErrMalformed) {
				t.Error(err)
			}
			return
		}
		if err := pack.Decode(pack.Append(nil, &got, packAll), &again, packAll); err != nil ||
			!reflect.DeepEqual(got, again) {
			t.Errorf("%+v was decoded as %+v, %v", got, again, err)
		}
	})
}
