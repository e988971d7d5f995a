package api_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/dray-dev/dray/internal/api"
)

func TestNewRequiresEveryDependency(t *testing.T) {
	var complete api.Config
	build(t, func(p *fakeDeps) { p.config = func(cfg *api.Config) { complete = *cfg } })
	for _, field := range reflect.VisibleFields(reflect.TypeFor[api.Config]()) {
		switch field.Name {
		case "Ready", "Warnings", "ConfigDigest", "TCP", "MCP", "Access", "Configured", "ProjectTools",
			"Denies", "AwaitTools", "ToolWarnings":
			continue
		}
		cfg := complete
		reflect.ValueOf(&cfg).Elem().FieldByIndex(field.Index).SetZero()
		if _, err := api.New(cfg); err == nil ||
			!strings.Contains(err.Error(), field.Name+" is missing") {
			t.Errorf("without %s: got %v", field.Name, err)
		}
	}
}
