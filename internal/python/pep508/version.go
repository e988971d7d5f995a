package pep508

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// versionPattern is the grammar of PEP 440, appendix B.
var versionPattern = regexp.MustCompile(`(?i)^v?(?:([0-9]+)!)?([0-9]+(?:\.[0-9]+)*)` +
	`(?:[-_.]?(alpha|a|beta|b|preview|pre|c|rc)[-_.]?([0-9]*))?` +
	`(?:-([0-9]+)|[-_.]?(post|rev|r)[-_.]?([0-9]*))?` +
	`(?:[-_.]?(dev)[-_.]?([0-9]*))?` +
	`(?:\+([a-z0-9]+(?:[-_.][a-z0-9]+)*))?$`)

// Version is a version of PEP 440.
type Version struct {
	epoch   uint64
	release []uint64
	pre     string // "a", "b", "rc" or empty
	preN    uint64
	post    *uint64
	dev     *uint64
	local   []string
}

// ParseVersion parses a version in any spelling that PEP 440 allows.
func ParseVersion(text string) (Version, error) {
	m := versionPattern.FindStringSubmatch(text)
	if m == nil {
		return Version{}, fmt.Errorf("%q is not a version", text)
	}
	n := numbers{text: text}
	v := Version{epoch: n.parse(m[1]), pre: preLetter(m[3]), preN: n.parse(m[4])}
	for part := range strings.SplitSeq(m[2], ".") {
		v.release = append(v.release, n.parse(part))
	}
	if m[5] != "" || m[6] != "" {
		post := n.parse(m[5] + m[7])
		v.post = &post
	}
	if m[8] != "" {
		dev := n.parse(m[9])
		v.dev = &dev
	}
	if m[10] != "" {
		v.local = strings.FieldsFunc(strings.ToLower(m[10]), isSeparator)
	}
	return v, n.err
}

func isSeparator(r rune) bool { return r == '-' || r == '_' || r == '.' }

// numbers parses the numbers of one version and keeps the first error.
type numbers struct {
	text string
	err  error
}

func (n *numbers) parse(digits string) uint64 {
	if digits == "" {
		return 0
	}
	value, err := strconv.ParseUint(digits, 10, 64)
	if err != nil && n.err == nil {
		n.err = fmt.Errorf("%q has a number that is too large", n.text)
	}
	return value
}

func preLetter(word string) string {
	switch word = strings.ToLower(word); word {
	case "alpha":
		return "a"
	case "beta":
		return "b"
	case "c", "pre", "preview":
		return "rc"
	default:
		return word
	}
}

// String returns the normal form.
func (v Version) String() string {
	text := v.public()
	if len(v.local) > 0 {
		text += "+" + strings.Join(v.local, ".")
	}
	return text
}

func (v Version) public() string {
	text := v.base()
	if v.pre != "" {
		text += fmt.Sprintf("%s%d", v.pre, v.preN)
	}
	if v.post != nil {
		text += fmt.Sprintf(".post%d", *v.post)
	}
	if v.dev != nil {
		text += fmt.Sprintf(".dev%d", *v.dev)
	}
	return text
}

// base returns epoch and release.
func (v Version) base() string {
	text := ""
	if v.epoch > 0 {
		text = strconv.FormatUint(v.epoch, 10) + "!"
	}
	for i, n := range v.release {
		if i > 0 {
			text += "."
		}
		text += strconv.FormatUint(n, 10)
	}
	return text
}

// Compare returns -1, 0 or 1 in the order of PEP 440.
func (v Version) Compare(w Version) int {
	return cmp.Or(v.comparePublic(w), slices.CompareFunc(v.local, w.local, compareLocal))
}

func (v Version) comparePublic(w Version) int {
	preV, nV := v.preOrder()
	preW, nW := w.preOrder()
	return cmp.Or(
		v.compareBase(w),
		cmp.Compare(preV, preW), cmp.Compare(nV, nW),
		compareOptional(v.post, w.post, -1), compareOptional(v.dev, w.dev, 1))
}

// compareBase compares epoch and release; 1.0 and 1 are equal.
func (v Version) compareBase(w Version) int {
	return cmp.Or(cmp.Compare(v.epoch, w.epoch),
		slices.Compare(trimZeros(v.release), trimZeros(w.release)))
}

func trimZeros(release []uint64) []uint64 {
	for len(release) > 1 && release[len(release)-1] == 0 {
		release = release[:len(release)-1]
	}
	return release
}

// preOrder orders 1.0.dev1 < 1.0a1 < 1.0b1 < 1.0rc1 < 1.0.
func (v Version) preOrder() (kind int, n uint64) {
	switch {
	case v.pre != "":
		return 1 + slices.Index([]string{"a", "b", "rc"}, v.pre), v.preN
	case v.post == nil && v.dev != nil:
		return 0, 0
	default:
		return 4, 0
	}
}

// compareOptional compares two numbers; absent is the order of an absent number.
func compareOptional(a, b *uint64, absent int) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return absent
	case b == nil:
		return -absent
	default:
		return cmp.Compare(*a, *b)
	}
}

// compareLocal orders words before numbers.
func compareLocal(a, b string) int {
	nA, errA := strconv.ParseUint(a, 10, 64)
	nB, errB := strconv.ParseUint(b, 10, 64)
	switch {
	case errA == nil && errB == nil:
		return cmp.Compare(nA, nB)
	case errA == nil:
		return 1
	case errB == nil:
		return -1
	default:
		return cmp.Compare(a, b)
	}
}

// IsPrerelease reports whether v comes before a release: 1.0a1, 1.0.dev1.
func (v Version) IsPrerelease() bool { return v.pre != "" || v.dev != nil }
