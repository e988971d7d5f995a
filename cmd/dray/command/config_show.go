package command

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/config"
)

func newConfigShow(a *app) *cobra.Command {
	var origin bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show every value that holds, and where it comes from",
		Long: `show prints every value that a daemon with these flags and variables would have, one
per line. Secrets are not shown. A daemon that runs keeps the configuration that it
was started with. No daemon is asked or started.`,
		Example: "  dray config show --origin\n  DRAY_LIMITS_TIMEOUT=5m dray config show --json",
		Args:    noArgs,
	}
	cmd.Flags().BoolVar(&origin, "origin", false, "say where each value was set: file, variable, flag or default")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(context.Context, []string) error { return a.runConfigShow(origin) })
	return cmd
}

// configItem is a setting as programs get it.
type configItem struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Origin string `json:"origin,omitempty"`
}

func (a *app) runConfigShow(origin bool) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	var items []configItem
	for _, s := range cfg.Settings() {
		item := configItem{Key: s.Key, Value: s.Value}
		if origin {
			item.Origin = s.Origin.String()
		}
		items = append(items, item)
	}
	if a.json {
		return a.printJSON(struct {
			File  string       `json:"file"`
			Items []configItem `json:"items"`
		}{cfg.File, items})
	}
	return writeConfig(a.out, items)
}

// writeConfig writes a line for each setting. What the file would have to write in several lines stands in one, as JSON.
func writeConfig(w io.Writer, items []configItem) error {
	var b strings.Builder
	for _, item := range items {
		text, err := configText(item.Value)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s = %s", escapeLine(item.Key), text)
		if item.Origin != "" {
			b.WriteString("  # " + escapeLine(item.Origin))
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return outputError(err)
}

// configText is a value in one line: a text bare where that leaves no doubt about where it begins and ends, everything else as JSON.
func configText(v any) (string, error) {
	if s, ok := v.(string); ok && s != "" && s == strings.TrimSpace(s) && s == escapeLine(s) {
		return s, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("writing a value of the configuration: %w", err)
	}
	return escapeLine(string(safeJSON(b))), nil
}

// origins gives the variables and flags that have set something, each once, in the order of the settings.
func origins(settings []config.Setting) (variables, flags []string) {
	seen := map[config.Origin]bool{}
	for _, s := range settings {
		at := config.Origin{Variable: s.Origin.Variable, Flag: s.Origin.Flag}
		if seen[at] {
			continue
		}
		seen[at] = true
		switch {
		case at.Flag != "":
			flags = append(flags, at.Flag)
		case at.Variable != "":
			variables = append(variables, at.Variable)
		}
	}
	return variables, flags
}
