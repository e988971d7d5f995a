package api_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/dray-dev/dray/internal/api"
)

// A server that lacks a part is not made: it would fail in the midst of a request.
func TestEveryPartIsNeeded(t *testing.T) {
	var whole api.Config
	build(t, func(p *fakeDeps) { p.config = func(cfg *api.Config) { whole = *cfg } })
	for _, field := range reflect.VisibleFields(reflect.TypeFor[api.Config]()) {
		if field.Name == "Ready" || field.Name == "Version" {
			continue
		}
		cfg := whole
		reflect.ValueOf(&cfg).Elem().FieldByIndex(field.Index).SetZero()
		if _, err := api.New(cfg); err == nil ||
			!strings.Contains(err.Error(), field.Name+" is missing") {
			t.Errorf("without %s: got %v", field.Name, err)
		}
	}
}
