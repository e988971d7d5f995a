//go:build mcpfixtures

package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// The fixtures of the conformance suite: the tools, prompts and resources that its scenarios name,
// and what they must return. The suite defines them (`conformance list --server`).

// fixtureOptions adds the capabilities that only fixtures need.
func fixtureOptions(opts *sdk.ServerOptions) {
	opts.Capabilities = &sdk.ServerCapabilities{ // and those of what is registered
		Logging: &sdk.LoggingCapabilities{}, Extensions: opts.Capabilities.Extensions,
	}
	opts.CompletionHandler = func(context.Context, *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
		return &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: []string{}}}, nil
	}
	opts.SubscribeHandler = func(context.Context, *sdk.SubscribeRequest) error { return nil }
	opts.UnsubscribeHandler = func(context.Context, *sdk.UnsubscribeRequest) error { return nil }
}

// addFixtures returns a store with the tasks of the fixtures, beside those of another one.
func addFixtures(s *sdk.Server, tasks taskStore) taskStore {
	f := fixtures{s}
	f.addContents()
	f.addNotifications()
	f.addQuestions()
	f.addInputs()
	f.addSchemas()
	f.addResources()
	f.addPrompts()
	own := &fixtureTasks{taskStore: tasks, tasks: map[string]*fixtureTask{}}
	f.addTasks(own)
	return own
}

type fixtures struct{ server *sdk.Server }

type fixture func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error)

const anyObject = `{"type":"object"}`

func (f fixtures) tool(name, schema string, run fixture) {
	f.server.AddTool(&sdk.Tool{
		Name: name, Description: "A fixture of the conformance suite.",
		InputSchema: json.RawMessage(schema),
	}, sdk.ToolHandler(run))
}

func texts(format string, args ...any) *sdk.CallToolResult {
	return contents(&sdk.TextContent{Text: fmt.Sprintf(format, args...)})
}

func contents(all ...sdk.Content) *sdk.CallToolResult { return &sdk.CallToolResult{Content: all} }

var (
	// pixel is a PNG of one pixel, silence a WAV without samples.
	pixel = decode64("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAA" +
		"BJRU5ErkJggg==")
	silence = decode64("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=")
)

func decode64(s string) []byte {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

func embedded(uri string) *sdk.EmbeddedResource {
	return &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{
		URI: uri, MIMEType: "text/plain", Text: "Embedded text.",
	}}
}

func (f fixtures) addContents() {
	image := &sdk.ImageContent{Data: pixel, MIMEType: "image/png"}
	for name, result := range map[string]*sdk.CallToolResult{
		"test_simple_text":       texts("This is a simple text response for testing."),
		"test_image_content":     contents(image),
		"test_audio_content":     contents(&sdk.AudioContent{Data: silence, MIMEType: "audio/wav"}),
		"test_embedded_resource": contents(embedded("test://embedded-resource")),
		"test_multiple_content_types": contents(&sdk.TextContent{Text: "Text."}, image,
			embedded("test://embedded-in-multiple")),
		"test_streaming_elicitation": texts("only notifications and the result"),
	} {
		f.tool(name, anyObject, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return result, nil
		})
	}
	f.tool("test_error_handling", anyObject, func(context.Context, *sdk.CallToolRequest,
	) (*sdk.CallToolResult, error) {
		res := texts("This tool intentionally returns an error for testing")
		res.IsError = true
		return res, nil
	})
}

func (f fixtures) addNotifications() {
	logs := func(lines ...string) fixture {
		return func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			for _, text := range lines {
				_ = req.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Data: text})
				time.Sleep(50 * time.Millisecond)
			}
			return texts("logged"), nil
		}
	}
	f.tool("test_tool_with_logging", anyObject, logs("Tool execution started", "Tool processing data",
		"Tool execution completed"))
	f.tool("test_logging_tool", anyObject, logs("one line"))
	f.tool("test_tool_with_progress", anyObject, func(ctx context.Context, req *sdk.CallToolRequest,
	) (*sdk.CallToolResult, error) {
		token := req.Params.GetProgressToken()
		for _, n := range []float64{0, 50, 100} {
			_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
				ProgressToken: token, Progress: n, Total: 100,
			})
			time.Sleep(50 * time.Millisecond)
		}
		return texts("%v", token), nil
	})
	f.tool("test_reconnection", anyObject, func(_ context.Context, req *sdk.CallToolRequest,
	) (*sdk.CallToolResult, error) {
		if req.Extra.CloseSSEStream != nil {
			req.Extra.CloseSSEStream(sdk.CloseSSEStreamArgs{RetryAfter: 10 * time.Millisecond})
		}
		time.Sleep(100 * time.Millisecond)
		return texts("reconnected"), nil
	})
	f.tool("test_trigger_tool_change", anyObject, func(context.Context, *sdk.CallToolRequest,
	) (*sdk.CallToolResult, error) {
		f.tool("test_added_tool", anyObject, func(context.Context, *sdk.CallToolRequest,
		) (*sdk.CallToolResult, error) {
			return texts(""), nil
		})
		return texts("changed"), nil
	})
	f.tool("test_trigger_prompt_change", anyObject, func(context.Context, *sdk.CallToolRequest,
	) (*sdk.CallToolResult, error) {
		f.prompt("test_added_prompt", nil, func(*sdk.GetPromptRequest) []sdk.Content { return nil })
		return texts("changed"), nil
	})
}

// object returns the schema of an object with properties, of which some are required.
func object(properties map[string]any, required ...string) map[string]any {
	schema := map[string]any{"type": "object", "properties": properties}
	if len(required) > 0 {
		schema["required"] = required
	}
	return schema
}

func textProperty(extra map[string]any) map[string]any {
	all := map[string]any{"type": "string"}
	for k, v := range extra {
		all[k] = v
	}
	return all
}

// addQuestions adds the tools that ask the client while they run, as revisions with sessions can.
func (f fixtures) addQuestions() {
	f.tool("test_sampling", `{"type":"object","properties":{"prompt":{"type":"string"}}}`,
		func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			var args struct {
				Prompt string `json:"prompt"`
			}
			_ = json.Unmarshal(req.Params.Arguments, &args)
			reply, err := req.Session.CreateMessage(ctx, question(args.Prompt, 100))
			if err != nil {
				return nil, err
			}
			text, _ := reply.Content.(*sdk.TextContent)
			if text == nil {
				return nil, errors.New("the reply is not text")
			}
			return texts("LLM response: %s", text.Text), nil
		})
	const status = "status"
	titled := []map[string]any{
		{"const": "value1", "title": "First"},
		{"const": "value2", "title": "Second"},
		{"const": "value3", "title": "Third"},
	}
	several := func(items map[string]any) map[string]any {
		return map[string]any{"type": "array", "minItems": 1, "maxItems": 3, "items": items}
	}
	for name, schema := range map[string]any{
		"test_elicitation": object(map[string]any{"username": textProperty(nil)}, "username"),
		"test_elicitation_sep1034_defaults": object(map[string]any{
			"name":     textProperty(map[string]any{"default": "John Doe"}),
			"age":      map[string]any{"type": "integer", "default": 30},
			"score":    map[string]any{"type": "number", "default": 95.5},
			"verified": map[string]any{"type": "boolean", "default": true},
			status: textProperty(map[string]any{
				"enum": []string{"active", "inactive", "pending"}, "default": "active",
			}),
		}),
		"test_elicitation_sep1330_enums": object(map[string]any{
			"untitledSingle": textProperty(map[string]any{
				"enum": []string{"option1", "option2", "option3"},
			}),
			"titledSingle": textProperty(map[string]any{"oneOf": titled}),
			"legacyEnum": textProperty(map[string]any{
				"enum":      []string{"opt1", "opt2", "opt3"},
				"enumNames": []string{"Option One", "Option Two", "Option Three"},
			}),
			"untitledMulti": several(map[string]any{
				"type": "string", "enum": []string{"option1", "option2", "option3"},
			}),
			"titledMulti": several(map[string]any{"anyOf": titled}),
		}),
	} {
		f.tool(name, `{"type":"object","properties":{"message":{"type":"string"}}}`,
			func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				args := struct {
					Message string `json:"message"`
				}{"A question of the suite."}
				_ = json.Unmarshal(req.Params.Arguments, &args)
				reply, err := req.Session.Elicit(ctx, &sdk.ElicitParams{
					Message: args.Message, RequestedSchema: schema,
				})
				if err != nil {
					return nil, err
				}
				return texts("Elicitation result: action=%s, content=%v", reply.Action, reply.Content), nil
			})
	}
	f.tool("test_missing_capability", anyObject, func(_ context.Context, req *sdk.CallToolRequest,
	) (*sdk.CallToolResult, error) {
		if caps := req.ClientCapabilities(); caps != nil && caps.Sampling != nil {
			return texts("the client can sample"), nil
		}
		data, err := json.Marshal(sdk.MissingRequiredClientCapabilityData{
			RequiredCapabilities: &sdk.ClientCapabilities{Sampling: &sdk.SamplingCapabilities{}},
		})
		if err != nil {
			return nil, err
		}
		return nil, &jsonrpc.Error{
			Code: sdk.CodeMissingRequiredClientCapabilities, Message: "the client cannot sample", Data: data,
		}
	})
}

func question(prompt string, tokens int64) *sdk.CreateMessageParams {
	return &sdk.CreateMessageParams{
		Messages: []*sdk.SamplingMessage{
			{Role: "user", Content: &sdk.TextContent{Text: prompt}},
		},
		MaxTokens: tokens,
	}
}

// answer returns what the user has entered for a question, or nil.
func answer(replies sdk.InputResponseMap, key string) map[string]any {
	if reply, ok := replies[key].(*sdk.ElicitResult); ok && reply != nil && reply.Action == "accept" {
		return reply.Content
	}
	return nil
}

func sampled(replies sdk.InputResponseMap, key string) (string, bool) {
	reply, ok := replies[key].(*sdk.CreateMessageWithToolsResult)
	if !ok || reply == nil {
		return "", false
	}
	for _, c := range reply.Content {
		if text, ok := c.(*sdk.TextContent); ok {
			return text.Text, true
		}
	}
	return "", true
}

func ask(state string, questions sdk.InputRequestMap) *sdk.CallToolResult {
	return &sdk.CallToolResult{InputRequests: questions, RequestState: state}
}

var (
	askName    = &sdk.ElicitParams{Message: "Name?", RequestedSchema: object(map[string]any{"name": textProperty(nil)}, "name")}
	askConfirm = &sdk.ElicitParams{
		Message:         "OK?",
		RequestedSchema: object(map[string]any{"ok": map[string]any{"type": "boolean"}}, "ok"),
	}
)

// addInputs adds the tools that ask by their result, as of revision 2026-07-28.
func (f fixtures) addInputs() {
	const prefix = "test_input_required_result_"
	f.tool(prefix+"elicitation", anyObject, func(_ context.Context, req *sdk.CallToolRequest,
	) (*sdk.CallToolResult, error) {
		if name, _ := answer(req.Params.InputResponses, "user_name")["name"].(string); name != "" {
			return texts("Hello, %s!", name), nil
		}
		return ask("", sdk.InputRequestMap{"user_name": askName}), nil
	})
	f.tool(prefix+"sampling", anyObject, func(_ context.Context, req *sdk.CallToolRequest,
	) (*sdk.CallToolResult, error) {
		if text, ok := sampled(req.Params.InputResponses, "capital_question"); ok {
			return texts("Sampling response: %s", text), nil
		}
		return ask("", sdk.InputRequestMap{
			"capital_question": question("What is the capital of France?", 100),
		}), nil
	})
	f.tool(prefix+"list_roots", anyObject, func(_ context.Context, req *sdk.CallToolRequest,
	) (*sdk.CallToolResult, error) {
		if roots, ok := req.Params.InputResponses["client_roots"].(*sdk.ListRootsResult); ok && roots != nil {
			return texts("%d roots", len(roots.Roots)), nil
		}
		return ask("", sdk.InputRequestMap{"client_roots": &sdk.ListRootsParams{}}), nil
	})
	f.tool(prefix+"multiple_inputs", anyObject, severalInputs)
	f.tool(prefix+"multi_round", anyObject, severalRounds)
	for _, name := range []string{"request_state", "tampered_state"} {
		f.tool(prefix+name, anyObject, func(_ context.Context, req *sdk.CallToolRequest,
		) (*sdk.CallToolResult, error) {
			state := req.Params.RequestState
			if state != "" && state != name {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the state was changed"}
			}
			if state != "" && answer(req.Params.InputResponses, "confirm") != nil {
				return texts("state-ok"), nil
			}
			return ask(name, sdk.InputRequestMap{"confirm": askConfirm}), nil
		})
	}
	f.tool(prefix+"capabilities", anyObject, inputsByCapability)
}

func severalInputs(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	replies := req.Params.InputResponses
	name, _ := answer(replies, "user_name")["name"].(string)
	greeting, greeted := sampled(replies, "greeting")
	roots, _ := replies["client_roots"].(*sdk.ListRootsResult)
	if name != "" && greeted && roots != nil {
		return texts("%s %s, %d roots", greeting, name, len(roots.Roots)), nil
	}
	return ask("multiple_inputs", sdk.InputRequestMap{
		"user_name": askName, "greeting": question("Greet.", 50),
		"client_roots": &sdk.ListRootsParams{},
	}), nil
}

func severalRounds(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	const second = "2;"
	replies := req.Params.InputResponses
	switch state := req.Params.RequestState; {
	case state == "":
		return ask("1", sdk.InputRequestMap{"step1": askName}), nil
	case strings.HasPrefix(state, second):
		color, _ := answer(replies, "step2")["color"].(string)
		return texts("%s likes %s", strings.TrimPrefix(state, second), color), nil
	default:
		name, _ := answer(replies, "step1")["name"].(string)
		return ask(second+name, sdk.InputRequestMap{"step2": &sdk.ElicitParams{
			Message:         "Color?",
			RequestedSchema: object(map[string]any{"color": textProperty(nil)}, "color"),
		}}), nil
	}
}

func inputsByCapability(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	questions := sdk.InputRequestMap{}
	if caps := req.ClientCapabilities(); caps != nil && len(req.Params.InputResponses) == 0 {
		if caps.Elicitation != nil {
			questions["user_name"] = askName
		}
		if caps.Sampling != nil {
			questions["greeting"] = question("Greet.", 50)
		}
		if caps.RootsV2 != nil {
			questions["client_roots"] = &sdk.ListRootsParams{}
		}
	}
	if len(questions) == 0 {
		return texts("nothing to ask"), nil
	}
	return ask("", questions), nil
}

func (f fixtures) addSchemas() {
	echo := func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return texts("%s", req.Params.Arguments), nil
	}
	f.tool("test_x_mcp_header", `{"type":"object","properties":{
		"region":{"type":"string","x-mcp-header":"Region"},"level":{"type":"integer"}}}`, echo)
	f.tool("json_schema_2020_12_tool", `{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"type": "object",
		"$defs": {"address": {"$anchor": "addressDef", "type": "object",
			"properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
		"properties": {
			"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"},
			"contactMethod": {"type": "string", "enum": ["phone", "email"]},
			"phone": {"type": "string"}, "email": {"type": "string"}},
		"allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
		"if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
		"then": {"required": ["phone"]}, "else": {"required": ["email"]},
		"additionalProperties": false}`, echo)
}

func (f fixtures) addResources() {
	resource := func(uri string, c sdk.ResourceContents) {
		c.URI = uri
		f.server.AddResource(&sdk.Resource{
			URI: uri, Name: strings.TrimPrefix(uri, "test://"), MIMEType: c.MIMEType,
		}, func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{&c}}, nil
		})
	}
	resource("test://static-text", sdk.ResourceContents{MIMEType: "text/plain", Text: "Static text."})
	resource("test://static-binary", sdk.ResourceContents{MIMEType: "image/png", Blob: pixel})
	resource("test://watched-resource", sdk.ResourceContents{MIMEType: "text/plain", Text: "Watched."})
	f.server.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "template", MIMEType: "application/json", URITemplate: "test://template/{id}/data",
	}, func(_ context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		id := strings.TrimSuffix(strings.TrimPrefix(req.Params.URI, "test://template/"), "/data")
		text, err := json.Marshal(map[string]any{"id": id, "templateTest": true, "data": "Data for ID: " + id})
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{
			{URI: req.Params.URI, MIMEType: "application/json", Text: string(text)},
		}}, err
	})
}

func (f fixtures) prompt(name string, arguments []string,
	messages func(*sdk.GetPromptRequest) []sdk.Content,
) {
	p := &sdk.Prompt{Name: name, Description: "A fixture of the conformance suite."}
	for _, a := range arguments {
		p.Arguments = append(p.Arguments, &sdk.PromptArgument{Name: a, Required: true})
	}
	f.server.AddPrompt(p, func(_ context.Context, req *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		res := &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{}}
		for _, c := range messages(req) {
			res.Messages = append(res.Messages, &sdk.PromptMessage{Role: "user", Content: c})
		}
		return res, nil
	})
}

func (f fixtures) addPrompts() {
	f.prompt("test_simple_prompt", nil, func(*sdk.GetPromptRequest) []sdk.Content {
		return []sdk.Content{&sdk.TextContent{Text: "This is a simple prompt for testing."}}
	})
	f.prompt("test_prompt_with_arguments", []string{"arg1", "arg2"},
		func(req *sdk.GetPromptRequest) []sdk.Content {
			return []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf("arg1='%s', arg2='%s'",
				req.Params.Arguments["arg1"], req.Params.Arguments["arg2"])}}
		})
	f.prompt("test_prompt_with_embedded_resource", []string{"resourceUri"},
		func(req *sdk.GetPromptRequest) []sdk.Content {
			return []sdk.Content{
				embedded(req.Params.Arguments["resourceUri"]), &sdk.TextContent{Text: "See above."},
			}
		})
	f.prompt("test_prompt_with_image", nil, func(*sdk.GetPromptRequest) []sdk.Content {
		return []sdk.Content{
			&sdk.ImageContent{Data: pixel, MIMEType: "image/png"}, &sdk.TextContent{Text: "See above."},
		}
	})
	f.server.AddPrompt(&sdk.Prompt{Name: "test_input_required_result_prompt", Description: "Asks for context."},
		func(_ context.Context, req *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			if text, _ := answer(req.Params.InputResponses, "user_context")["context"].(string); text != "" {
				return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{
					{Role: "user", Content: &sdk.TextContent{Text: "Context: " + text}},
				}}, nil
			}
			return &sdk.GetPromptResult{InputRequests: sdk.InputRequestMap{"user_context": &sdk.ElicitParams{
				Message: "Context?", RequestedSchema: object(map[string]any{"context": textProperty(nil)}, "context"),
			}}}, nil
		})
}
