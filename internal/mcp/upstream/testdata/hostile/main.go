// Command hostile is an MCP server that misbehaves in the way that its argument names.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

func main() {
	mode := os.Args[1]
	if mode == "crash-start" {
		fmt.Fprintln(os.Stderr, "no license")
		os.Exit(3)
	}
	if mode == "hang-start" {
		hang()
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var r request
		_ = json.Unmarshal(in.Bytes(), &r)
		switch r.Method {
		case "initialize":
			reply(r.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},`+
				`"serverInfo":{"name":"hostile","version":"1"}}`)
		case "tools/list":
			reply(r.ID, `{"tools":[`+tools(mode)+`]}`)
			switch mode {
			case "deaf":
				hang()
			case "pings":
				pings()
			}
		case "tools/call":
			call(mode, r.ID)
		default:
			if r.ID != nil {
				fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}`+"\n", r.ID)
			}
		}
	}
	if mode == "ignore-eof" {
		hang()
	}
}

func reply(id json.RawMessage, result string) {
	fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, result)
}

func tools(mode string) string {
	n := 1
	if mode == "many-tools" {
		n = 10000
	}
	description := ""
	if mode == "large-tools" {
		n, description = 400, strings.Repeat("d", 10_000)
	}
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{"name":"t%d","description":%q,"inputSchema":{"type":"object"}}`, i,
			description)
	}
	return strings.Join(list, ",")
}

func call(mode string, id json.RawMessage) {
	switch mode {
	case "crash":
		os.Exit(7)
	case "garbage":
		fmt.Println("\x1b[31mnot json")
	case "no-message":
		reply(json.RawMessage(`null`), `{"content":[]}`)
	case "giant-line":
		chunk := strings.Repeat("x", 1<<20)
		fmt.Print(`{"jsonrpc":"2.0","method":"`)
		for {
			if _, err := fmt.Print(chunk); err != nil {
				return
			}
		}
	case "flood":
		for {
			_, err := fmt.Println(`{"jsonrpc":"2.0","method":"notifications/message","params":` +
				`{"level":"info","data":"` + strings.Repeat("y", 1<<16) + `"}}`)
			if err != nil {
				return
			}
		}
	case "lying-ids":
		reply(json.RawMessage(`999999`), `{"content":[]}`)
	case "hang":
		hang()
	case "large-number":
		reply(id, `{"content":[],"_meta":{"dray/structuredContent":"{}","x":1},`+
			`"structuredContent":{"n":9007199254740993,"f":1.10}}`)
	case "children":
		_ = exec.Command("sleep", "86399").Start()
		reply(id, `{"content":[]}`)
	default:
		reply(id, `{"content":[{"type":"text","text":"ok"}]}`)
	}
}

// pings sends requests without end and reads no answer.
func pings() {
	many := strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n", 1000)
	for {
		if _, err := fmt.Print(many); err != nil {
			return
		}
	}
}

// hang blocks. Go ends a program whose goroutines all wait for ever.
func hang() {
	for {
		time.Sleep(time.Hour)
	}
}
