package config

// What a value may look like, for editors: each of these is the schema of what the method of the decoder with the like name reads. Patterns keep
// to what ECMAScript and RE2 have in common.

// dotDotSchema finds "..", which no path may have.
var dotDotSchema = &schema{Pattern: `(^|/)\.\.(/|$)`}

var (
	textSchema     = &schema{Type: "string", Pattern: `^[^\x00]*$`}
	lineSchema     = &schema{Type: "string", Pattern: `^[^\x00-\x1f\x7f]*$`}
	anAbsolutePath = &schema{Type: "string", Pattern: `^/[^\x00]*$`, Not: dotDotSchema}
	pathSchema     = &schema{Type: "string", Pattern: `^[^\x00]+$`, Not: dotDotSchema}
	aMappedPath    = &schema{Type: "string", Pattern: `^/[^\x00]*[^/\x00][^\x00]*$`, Not: dotDotSchema}
	aProgram       = &schema{Type: "string", Pattern: `^([^/~\\\x00]*|/[^\x00]*)$`, Not: dotDotSchema}
	anAddress      = &schema{Type: "string", Pattern: `^([^\x00-\x1f\x7f]*://[^\x00-\x1f\x7f]*)?$`}
	aVariable      = &schema{Type: "string", Pattern: `^[^=\x00-\x1f\x7f]+$`}
	aLabel         = &schema{Type: "string", Pattern: `^[^=\x00-\x1f\x7f]+=[^\x00-\x1f\x7f]*$`}
	aContainer     = &schema{Type: "string", Pattern: containerName.String()}
	targetSchema   = &schema{Type: "string", Pattern: `^([A-Za-z0-9][A-Za-z0-9_.-]*|/[^\x00]*)?$`, Not: dotDotSchema}
	aToolName      = &schema{Type: "string", Pattern: toolName.String(), MaxLength: maxToolName, Not: &schema{Enum: builtIn}}
	aDeniedName    = &schema{Type: "string", Pattern: `^([^/*?[\x00]+/)*[^/*?[\x00]+$`, Not: &schema{Pattern: `(^|/)\.{1,2}(/|$)`}}
	boolSchema     = &schema{Type: "boolean"}
	anArgv         = &schema{Type: "array", Items: textSchema, MinItems: 1}
	aJSONSchema    = &schema{Type: "object"}
)

// A whole number is a size in bytes; of durations, only 0 needs no unit.
var (
	aSize             = &schema{Type: []string{"string", "integer"}, Pattern: `^0*[1-9][0-9]*(B|KiB|MiB|GiB|TiB)?$`, Minimum: new(1)}
	aDuration         = &schema{Type: []string{"string", "integer"}, Pattern: `^\+?(0|` + durationPattern + `)$`, Minimum: new(0), Maximum: new(0)}
	aPositiveDuration = &schema{Type: "string", Pattern: `^\+?` + durationPattern + `$`, AllOf: []*schema{{Pattern: `[1-9]`}}}
)

// countFrom is a whole number of things.
func countFrom(least, most int) *schema {
	return &schema{Type: "integer", Minimum: new(least), Maximum: new(most)}
}

// durationPattern are numbers with units, as [time.ParseDuration] reads them.
const durationPattern = `(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+`

// anEnvironment is a word, or the container that it has to be.
var anEnvironment = &schema{AnyOf: []*schema{
	enumOf("auto", "host", "required", "container", "preferred"), objectOf(specificKeys, "specific"),
}}

// containersSchema says which keys of a container go together.
func containersSchema() *schema {
	one := objectOf(containerKeys)
	for _, key := range []string{"workspace", "id", "label"} {
		one.AnyOf = append(one.AnyOf, &schema{Required: []string{key}})
	}
	one.Not = &schema{AnyOf: []*schema{
		{Required: []string{"id", "label"}}, {Required: []string{"workspace", "id"}}, {Required: []string{"workspace", "label"}},
	}}
	one.DependentRequired = map[string][]string{"config": {"workspace"}, "service": {"workspace"}}
	return mapOf(&schema{Pattern: containerName.String(), Not: enumOf("host")}, one)
}

func plansSchema() *schema { return mapOf(&schema{MinLength: 1}, objectOf(planKeys)) }

func variablesSchema() *schema { return mapOf(&schema{Pattern: `^[^=\x00]+$`}, textSchema) }
