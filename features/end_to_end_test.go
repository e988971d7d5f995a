package features

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	picture "image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cucumber/godog"
)

func (w *world) endToEndSteps(sc *godog.ScenarioContext) {
	sc.Then(`^the file at (/\S+) contains "(.*)"$`, w.resultSays)
	sc.Then(`^the picture at (/\S+) shows the amounts ([\d, ]+)$`, w.pictureShows)
	sc.Then(`^the file at (/\S+) is one of those in (/\S+), byte for byte$`, w.inManifest)
}

// opened reads the file whose path is in the response, as a caller does.
func (w *world) opened(pointer string) (path string, content []byte, err error) {
	path, _ = w.answer.at(pointer).(string)
	content, err = os.ReadFile(path)
	return path, content, err
}

func (w *world) resultSays(pointer, text string) error {
	_, content, err := w.opened(pointer)
	if err == nil && !strings.Contains(string(content), text) {
		err = fmt.Errorf("the content is %q", content)
	}
	return err
}

// pictureShows decodes a chart and compares the heights of its bars with the amounts.
func (w *world) pictureShows(pointer, list string) error {
	_, content, err := w.opened(pointer)
	if err != nil {
		return err
	}
	chart, err := png.Decode(bytes.NewReader(content))
	if err != nil {
		return err
	}
	var amounts []int
	for text := range strings.SplitSeq(list, ", ") {
		amount, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		amounts = append(amounts, amount)
	}
	height := chart.Bounds().Dy()
	want := make([]int, len(amounts))
	for i, amount := range amounts {
		want[i] = amount * height / slices.Max(amounts)
	}
	if got := bars(chart); !slices.Equal(got, want) {
		return fmt.Errorf("the heights of the bars are %v, want %v", got, want)
	}
	return nil
}

// bars returns the heights of a chart's bars from the left: the number of pixels of a column that
// are not white.
func bars(chart picture.Image) []int {
	var heights []int
	before := 0
	for x := range chart.Bounds().Dx() {
		height := 0
		for y := range chart.Bounds().Dy() {
			if chart.At(x, y) != (color.RGBA{255, 255, 255, 255}) {
				height++
			}
		}
		if height > 0 && before == 0 {
			heights = append(heights, height)
		}
		before = height
	}
	return heights
}

// inManifest finds the file in a manifest and compares its size, its digest and its mode with those
// on the disk.
func (w *world) inManifest(pointer, manifest string) error {
	path, content, err := w.opened(pointer)
	if err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	digest := fmt.Sprintf("%x", sha256.Sum256(content))
	files, _ := w.answer.at(manifest).([]any)
	for _, file := range files {
		entry, _ := file.(map[string]any)
		if entry["path"] != path {
			continue
		}
		if entry["sha256"] != digest || fmt.Sprint(entry["size"]) != strconv.Itoa(len(content)) ||
			entry["mode"] != fmt.Sprintf("%04o", info.Mode().Perm()) {
			return fmt.Errorf("the entry is %v, the file has %d bytes of %s with mode %v", entry,
				len(content),
				digest, info.Mode())
		}
		return nil
	}
	return errors.New("it is not among them")
}

func TestStory(t *testing.T) {
	needsEngine(t)
	root := newDir(t)
	const example = "../examples/report"
	if err := os.CopyFS(filepath.Join(root, "app"), os.DirFS(example+"/project")); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(example + "/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	writeFiles(t, root, map[string]string{
		"app/.devcontainer/devcontainer.json": withImages(`{"image": "DEBIAN", "remoteUser": "vscode", "updateRemoteUserUID": false}`),
	})
	for name, mode := range map[string]os.FileMode{"home": 0o700, "app/reports": 0o777} {
		if err := errors.Join(os.MkdirAll(filepath.Join(root, name), 0o700),
			os.Chmod(filepath.Join(root, name), mode)); err != nil {
			t.Fatal(err)
		}
	}
	f := &fixture{
		daemon: startDaemon(t,
			string(config)+"sandbox: {root: "+root+"/home}\ntrust: {workspaces: ["+root+"/app]}\n"),
		root: root, names: map[string]string{"workspace": root + "/app", "root": root},
	}
	t.Cleanup(func() { removeContainers(t, root+"/app") })
	runFeature(t, "end_to_end.feature", f)
}
