package features

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
)

// answer is a response of the daemon.
type answer struct {
	status int
	header http.Header
	raw    []byte
	value  any
}

// at returns the value of a JSON pointer, or nil if there is none.
func (a answer) at(pointer string) any {
	v, _ := a.find(pointer)
	return v
}

func (a answer) find(pointer string) (v any, found bool) {
	v = a.value
	if pointer == "" || pointer == "/" {
		return v, true
	}
	for segment := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		segment = strings.NewReplacer("~1", "/", "~0", "~").Replace(segment)
		switch in := v.(type) {
		case map[string]any:
			v, found = in[segment]
		case []any:
			i, err := strconv.Atoi(segment)
			if found = err == nil && i < len(in); found {
				v = in[i]
			}
		default:
			found = false
		}
		if !found {
			return nil, false
		}
	}
	return v, true
}

func (a answer) id() string { return fmt.Sprint(a.at("/id")) }

// decode reads JSON so that numbers keep their digits.
func decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("decode %.200q: %w", text, err)
	}
	return v, nil
}

// same reports whether two decoded values are equal.
func same(a, b any) bool { return reflect.DeepEqual(a, b) }

// ask makes one request. A body that is not a reader is sent as JSON.
func (d *daemon) ask(ctx context.Context, method, path string, body any) (answer, error) {
	resp, err := d.send(ctx, method, path, body, "application/json")
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header}
	if a.raw, err = io.ReadAll(resp.Body); err != nil {
		return a, err
	}
	if strings.Contains(resp.Header.Get("Content-Type"), "json") {
		a.value, err = decode(a.raw)
	}
	return a, err
}

func (d *daemon) send(ctx context.Context, method, path string, body any,
	accept string,
) (*http.Response, error) {
	var payload io.Reader
	switch body := body.(type) {
	case nil:
	case string:
		payload = strings.NewReader(body)
	default:
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		payload = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, payload)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	if payload != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return d.http.Do(req)
}

// call starts a call.
func (d *daemon) call(ctx context.Context, query string, body map[string]any) (answer, error) {
	return d.ask(ctx, http.MethodPost, "/v1/invocations"+query, body)
}
