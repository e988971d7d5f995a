package server_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/dray-dev/dray/internal/server"
)

// A server that lacks a part is not made: it would fail in the midst of a request.
func TestEveryPartIsNeeded(t *testing.T) {
	var whole server.Config
	build(t, func(p *fakeDeps) { p.config = func(cfg *server.Config) { whole = *cfg } })
	for _, field := range reflect.VisibleFields(reflect.TypeFor[server.Config]()) {
		if field.Name == "Ready" || field.Name == "Version" {
			continue
		}
		cfg := whole
		reflect.ValueOf(&cfg).Elem().FieldByIndex(field.Index).SetZero()
		if _, err := server.New(cfg); err == nil ||
			!strings.Contains(err.Error(), field.Name+" is missing") {
			t.Errorf("without %s: got %v", field.Name, err)
		}
	}
}
