package features

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"image/png"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// analyze reads the sales with pandas and writes a workbook and a chart.
const analyze = `
import os
import sys

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd

sales = pd.read_csv(sys.argv[1])
sales["amount"] = sales["units"] * sales["price"]
totals = sales.groupby("region", as_index=False)["amount"].sum()
os.makedirs(sys.argv[2])
os.chdir(sys.argv[2])
totals.to_excel("out.xlsx", index=False)
figure = plt.figure(figsize=(4, 2), dpi=100)
axes = figure.add_axes([0, 0, 1, 1])
axes.axis("off")
axes.set_ylim(0, totals["amount"].max())
axes.bar(totals["region"], totals["amount"], width=0.5, color="black")
figure.savefig("chart.png")
print(len(sales), "rows")
`

var regions = []string{"east", "north", "south", "west"}

// sales returns a CSV file of 100,000 rows, and the total of each region.
func sales() (csv string, totals map[string]int) {
	var b strings.Builder
	b.WriteString("region,units,price\n")
	totals = map[string]int{}
	for i := range 100_000 {
		region, units, price := regions[i%7%4], i%13, 5+i%11
		fmt.Fprintf(&b, "%s,%d,%d\n", region, units, price)
		totals[region] += units * price
	}
	return b.String(), totals
}

// The story of PY-16, by the command line and by HTTP: packages are prepared, a script makes a
// workbook and a chart that are synced to the host, where other programs read them, and a second
// question uses the data that is in memory.
func TestPython_Story(t *testing.T) {
	needsEngine(t)
	root := newDir(t)
	csv, totals := sales()
	writeFiles(t, root, map[string]string{"app/sales.csv": csv, "app/analyze.py": analyze})
	if err := os.Mkdir(root+"/home", 0o700); err != nil {
		t.Fatal(err)
	}
	d := startDaemon(t, fmt.Sprintf(`containers: {py: {id: %s, folder: /workspaces/app}}
sandbox: {root: %s/home}
python: {prepare: {index: "file:///srv/science"}}
`, scienceContainer(t, root+"/app"), root))

	r := d.dray(t.Context(), strings.NewReader(""), "python", "prepare", "--container", "py",
		"--timeout", "5m", "pandas", "openpyxl", "matplotlib")
	if r.code != 0 || !strings.Contains(string(r.stdout), "\n+ pandas==") {
		t.Fatalf("prepare: %d: %s%s", r.code, r.stdout, r.stderr)
	}
	r = d.dray(t.Context(), strings.NewReader(""), "python", "--container", "py", "--timeout", "2m",
		"--cwd", "/workspaces/app", "--sync", "/tmp/report", "analyze.py", "sales.csv", "/tmp/report")
	if r.code != 0 || string(r.stdout) != "100000 rows\n" {
		t.Fatalf("analyze: %d: %s%s", r.code, r.stdout, r.stderr)
	}
	checkWorkbook(t, findFile(t, root+"/home", "out.xlsx"), totals)
	checkChart(t, findFile(t, root+"/home", "chart.png"), totals)

	ask := func(code string) answer {
		t.Helper()
		a, err := d.call(t.Context(), "", map[string]any{
			"tool": "python", "container": "py", "cwd": "/workspaces/app",
			"input": map[string]any{"code": code},
		})
		if err != nil || a.at("/status") != "succeeded" {
			t.Fatalf("%s: %v, %s", code, err, a.raw)
		}
		return a
	}
	ask("import pandas as pd\nsales = pd.read_csv('sales.csv')")
	if err := os.Remove(root + "/app/sales.csv"); err != nil {
		t.Fatal(err)
	}
	want := json.Number(strconv.Itoa(totals["north"]))
	north := ask("sales = sales.assign(amount=sales.units * sales.price)\n" +
		"sales.loc[sales.region == 'north', 'amount'].sum().item()")
	if got := north.at("/output/value"); got != want {
		t.Errorf("the sum of north is %v, want %v", got, want)
	}
	if got := ask("len(sales.columns)").at("/output/value"); got != json.Number("4") {
		t.Errorf("the frame is not the same: %v columns", got)
	}
}

// scienceContainer starts a container with uv, and with pandas, openpyxl and matplotlib as wheels.
func scienceContainer(t *testing.T, workspace string) string {
	t.Helper()
	uv, wheels := os.Getenv("DRAY_TEST_UV"), os.Getenv("DRAY_TEST_SCIENCE")
	for _, place := range []struct {
		path *string
		file string
	}{{&uv, "uv/bin/uv"}, {&wheels, "science"}} {
		if *place.path == "" {
			*place.path = "../.tools/" + place.file
		}
		absolute, err := filepath.Abs(*place.path)
		if _, statErr := os.Stat(absolute); err != nil || statErr != nil {
			t.Fatalf("%s is missing: scripts/setup uv science", *place.path)
		}
		*place.path = absolute
	}
	id, err := docker(t.Context(), "run", "--detach", "--init", "--network", "none",
		"--volume", workspace+":/workspaces/app", "--volume", uv+":/usr/local/bin/uv:ro",
		"--volume", wheels+":/srv/science:ro", debian, "sleep", "1000000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = docker(context.WithoutCancel(t.Context()), "rm", "--force", id) })
	return id
}

// findFile returns the content of the only file with a name beneath a directory.
func findFile(t *testing.T, dir, name string) []byte {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Name() == name {
			found = append(found, path)
		}
		return err
	})
	if err != nil || len(found) != 1 {
		t.Fatalf("%s is at %q, %v", name, found, err)
	}
	content, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// worksheet is what this test reads of a sheet of a workbook (ECMA-376).
type worksheet struct {
	Rows []struct {
		Cells []struct {
			Type   string `xml:"t,attr"`
			Value  string `xml:"v"`
			Inline string `xml:"is>t"`
		} `xml:"c"`
	} `xml:"sheetData>row"`
}

// checkWorkbook reads the workbook without Python.
func checkWorkbook(t *testing.T, content []byte, totals map[string]int) {
	t.Helper()
	book, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	var sheet worksheet
	readXML(t, book, "xl/worksheets/sheet1.xml", &sheet)
	var shared struct {
		Texts []string `xml:"si>t"`
	}
	if slices.ContainsFunc(book.File, func(f *zip.File) bool { return f.Name == "xl/sharedStrings.xml" }) {
		readXML(t, book, "xl/sharedStrings.xml", &shared)
	}
	var rows []string
	for _, row := range sheet.Rows {
		var cells []string
		for _, c := range row.Cells {
			text := c.Value + c.Inline
			if i, err := strconv.Atoi(c.Value); c.Type == "s" && err == nil && i < len(shared.Texts) {
				text = shared.Texts[i]
			}
			cells = append(cells, text)
		}
		rows = append(rows, strings.Join(cells, " "))
	}
	want := []string{"region amount"}
	for _, region := range regions {
		want = append(want, fmt.Sprint(region, " ", totals[region]))
	}
	if !slices.Equal(rows, want) {
		t.Errorf("the workbook has %q, want %q", rows, want)
	}
}

func readXML(t *testing.T, book *zip.Reader, name string, into any) {
	t.Helper()
	f, err := book.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(f)
	if err == nil {
		err = xml.Unmarshal(content, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// checkChart compares the heights of the bars with the totals, within a pixel.
func checkChart(t *testing.T, content []byte, totals map[string]int) {
	t.Helper()
	chart, err := png.Decode(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	bounds, most := chart.Bounds(), 0
	for _, total := range totals {
		most = max(most, total)
	}
	if bounds.Dx() != 400 || bounds.Dy() != 200 {
		t.Fatalf("the chart is %v", bounds)
	}
	var heights []int
	inBar := false
	for x := range bounds.Dx() {
		dark := 0
		for y := range bounds.Dy() {
			if r, g, b, a := chart.At(x, y).RGBA(); r+g+b == 0 && a == 0xffff {
				dark++
			}
		}
		switch {
		case dark > 0 && !inBar:
			heights = append(heights, dark)
		case dark > 0:
			heights[len(heights)-1] = max(heights[len(heights)-1], dark)
		}
		inBar = dark > 0
	}
	if len(heights) != len(regions) {
		t.Fatalf("the bars are %v", heights)
	}
	for i, region := range regions {
		want := totals[region] * bounds.Dy() / most
		if d := heights[i] - want; d < -1 || d > 1 {
			t.Errorf("the bar of %s has %d pixels, want %d", region, heights[i], want)
		}
	}
}

// A prepare that exceeds its time ends as timeout on HTTP, and one that is cancelled as cancelled;
// the session keeps its variables, and nothing of either is left (PY-15, PY-21, PY-26).
func TestPython_PrepareTimeoutAndCancel(t *testing.T) {
	needsEngine(t)
	root := newDir(t)
	writeFiles(t, root, map[string]string{"app/index/x": ""})
	if err := os.Mkdir(root+"/app/index/slow", 0o755); err != nil {
		t.Fatal(err)
	}
	// uv reads the page of the package until its end, which never comes
	fifo := root + "/app/index/slow/index.html"
	if err := syscall.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	id := scienceContainer(t, root+"/app")
	p := startPython(t, root, fmt.Sprintf("containers: {py: {id: %s, folder: /workspaces/app}}\n"+
		"python: {prepare: {index: 'file:///workspaces/app/index'}}\n", id))
	p.want(p.python("", `{"code":"x = 1"}`), "/status", "succeeded")
	const slow = `{"operation":"prepare","requirements":{"packages":["slow"],"action":"set"}}`
	check := func(a answer, reason string) {
		t.Helper()
		p.want(a, "/reason", reason)
		p.want(a, "/status", "failed")
		p.want(p.python("", `{"code":"x"}`), "/output/value", json.Number("1"))
		left, err := docker(t.Context(), "exec", p.containerID(), "sh", "-c",
			"ls -A ~/.cache/dray/python | grep -v -e ^uv -e ^lock; pgrep uv; true")
		if err != nil || left != "" {
			t.Errorf("%s: %v; left: %s", reason, err, left)
		}
	}
	request := func(query string, timeout int) answer {
		t.Helper()
		a, err := p.call(t.Context(), query, map[string]any{
			"tool": "python", "container": "py", "timeout_seconds": timeout,
			"input": json.RawMessage(slow),
		})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	open, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	check(request("", 2), "timeout")
	_ = open.Close()

	cancelled := "/v1/invocations/" + fmt.Sprint(request("?wait_ms=0", 600).at("/id"))
	writer, err := os.OpenFile(fifo, os.O_WRONLY, 0) // blocks until uv opens it
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Close() }()
	if _, err := p.ask(t.Context(), http.MethodPost, cancelled+"/cancel", nil); err != nil {
		t.Fatal(err)
	}
	a, err := p.ask(t.Context(), http.MethodGet, cancelled+"?wait_ms=60000", nil)
	if err != nil {
		t.Fatal(err)
	}
	check(a, "cancelled")
}

// containerID returns the id of the container py.
func (p *pythonDaemon) containerID() string {
	return fmt.Sprint(p.python("", `{"operation":"status"}`).at("/metadata/container/id"))
}
