package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Setting is an effective value, for `dray config show`.
type Setting struct {
	// Key is named as in errors: "limits.timeout", "containers.db.mappings[0].host".
	Key string
	// Value is a string, a []string, or the JSON of a schema, an empty list or an empty block.
	// Durations and sizes are strings in the form of the file. Secrets and passwords are redacted.
	Value any
	// Origin is the source of the value.
	Origin Origin
}

// Settings returns every effective value, beginning with the state directory. A named entry or a
// tool contributes its keys that have a value.
func (c *Config) Settings() []Setting {
	l := &settingsLister{c: c}
	l.add("state", string(c.State))
	for _, s := range settings {
		if s.supported() {
			l.any(s.key, fieldOf(reflect.ValueOf(*c), s.key), s.kind.secret)
		}
	}
	return l.all
}

// Digest returns a short hash of all effective values except secrets. Two programs with the same
// digest have the same configuration.
func (c *Config) Digest() string {
	h := sha256.New()
	for _, s := range c.Settings() {
		fmt.Fprintf(h, "%q %q\n", s.Key, fmt.Sprint(s.Value))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// SourceDigest returns a short hash of what flags and variables decide beside the state directory:
// values, except secrets, and which file is read. If two programs have the same one and another
// [Config.Digest], the file has changed in between.
func (c *Config) SourceDigest() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q\n", c.FileToEdit())
	for _, s := range c.FromVariables() {
		fmt.Fprintf(h, "%q %q\n", s.Key, fmt.Sprint(s.Value))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// FromVariables returns the settings that variables decide, without the state directory.
func (c *Config) FromVariables() []Setting {
	return slices.DeleteFunc(c.Settings(), func(s Setting) bool {
		return s.Origin.Variable == "" || s.Origin.Variable == "DRAY_STATE"
	})
}

// fieldOf returns the field of a key: Limits.MaxTimeout for limits.max_timeout.
func fieldOf(v reflect.Value, key string) reflect.Value {
	for name := range strings.SplitSeq(key, ".") {
		v = v.FieldByNameFunc(func(field string) bool { return snakeCase(field) == name })
	}
	return v
}

// snakeCase returns the key of a field: max_timeout for MaxTimeout, up_args for UpArgs, id for ID.
func snakeCase(field string) string {
	var b strings.Builder
	for i := range len(field) {
		if i > 0 && field[i] < 'a' && field[i-1] >= 'a' {
			b.WriteByte('_')
		}
		b.WriteByte(field[i])
	}
	return strings.ToLower(b.String())
}

// settingsLister collects settings.
type settingsLister struct {
	c   *Config
	all []Setting
}

func (l *settingsLister) add(key string, val any) {
	l.all = append(l.all, Setting{Key: key, Value: val, Origin: l.c.Origin(key)})
}

// any adds a value of any type in Config.
func (l *settingsLister) any(key string, v reflect.Value, secret bool) {
	switch x := v.Interface().(type) {
	case time.Duration:
		l.add(key, durationText(x))
	case int64:
		l.add(key, sizeText(x))
	case int:
		l.add(key, strconv.Itoa(x))
	case bool:
		l.add(key, strconv.FormatBool(x))
	case json.RawMessage:
		l.add(key, maskJSON(x))
	case []string:
		shown := make([]string, len(x))
		for i, item := range x {
			shown[i] = shownText(item, secret)
		}
		l.add(key, shown)
	default:
		l.composite(key, v, secret)
	}
}

// composite adds the elements of a value, or a text.
func (l *settingsLister) composite(key string, v reflect.Value, secret bool) {
	switch kind := v.Kind(); {
	case kind == reflect.Map && v.Len() == 0:
		l.add(key, json.RawMessage("{}"))
	case kind == reflect.Map:
		names := v.MapKeys()
		slices.SortFunc(names,
			func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, name := range names {
			l.any(join(key, name.String()), v.MapIndex(name), secret)
		}
	case kind == reflect.Slice && v.Len() == 0:
		l.add(key, json.RawMessage("[]"))
	case kind == reflect.Slice:
		for i := range v.Len() {
			l.any(index(key, i), v.Index(i), secret)
		}
	case kind == reflect.Struct:
		l.element(key, v, secret)
	default:
		l.add(key, shownText(v.String(), secret))
	}
}

// element adds the keys of a named entry or a tool that have a value.
func (l *settingsLister) element(key string, v reflect.Value, secret bool) {
	for i := range v.NumField() {
		name, member := snakeCase(v.Type().Field(i).Name), v.Field(i)
		if t, ok := reflect.TypeAssert[Tool](v); ok && t.Container != "" {
			switch name {
			case "environment":
				continue
			case "container": // in the file it is beneath environment
				name = "environment.specific"
			}
		}
		if !member.IsZero() {
			s, _ := toolKeys.find(name)
			l.any(key+"."+name, member, secret || s.kind.secret)
		}
	}
}

func shownText(s string, secret bool) string {
	if secret {
		return redacted
	}
	return maskPassword(s)
}

// maskJSON masks the passwords in the strings of compact JSON.
func maskJSON(raw json.RawMessage) json.RawMessage {
	jsonString := regexp.MustCompile(`"(?:[^"\\]|\\.)*":?`)
	return jsonString.ReplaceAllFunc(raw, func(quoted []byte) []byte {
		var s string
		if err := json.Unmarshal(quoted, &s); err != nil || maskPassword(s) == s {
			return quoted // also a key, because of its colon
		}
		var b bytes.Buffer
		writeJSONText(&b, maskPassword(s))
		return b.Bytes()
	})
}

// durationText returns a duration without trailing zero units: 2m, not 2m0s.
func durationText(span time.Duration) string {
	s := span.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// sizeText returns a size in the largest unit in which it is a whole number.
func sizeText(n int64) string {
	units := []string{"", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for n != 0 && n%1024 == 0 && i < len(units)-1 {
		n /= 1024
		i++
	}
	return fmt.Sprint(n, units[i])
}
