// Package setfile reads the files of a set: jobs as YAML or JSON, and where each part of
// them stands.
//
// It owns how a file becomes definitions, and how the path of a fault becomes a line. It
// refuses to know what a definition means: the service says that.
package setfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/oasdiff/yaml3"
)

// maxNodes bounds the values of a file, those that an alias repeats counted each time.
const maxNodes = 2_000_000

// Job is a definition in a file.
type Job struct {
	Name string
	File string
	JSON json.RawMessage

	root *yaml.Node
}

// Fault is what is wrong with a file, and where.
type Fault struct {
	File string
	Line int // 0: not known
	Text string
}

// String is the fault as compilers write theirs.
func (f Fault) String() string {
	if f.Line == 0 {
		return f.File + ": " + f.Text
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Text)
}

// Read reads the jobs of a file: documents that are a job each, or a list of jobs.
func Read(file string, text []byte) (jobs []Job, faults []Fault) {
	if path.Ext(file) == ".json" {
		text = bytes.ReplaceAll(text, []byte("\t"), []byte(" ")) // YAML knows no tabs, and no text of JSON holds one
	}
	r := reader{file: file, left: maxNodes}
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return r.jobs, r.faults
		}
		if err != nil {
			r.unreadable(err)
			return r.jobs, r.faults
		}
		for _, root := range document.Content {
			r.document(root)
		}
	}
}

// FirstOfEach finds names that stand more than once, and keeps the first of each.
func FirstOfEach(jobs []Job) (first []Job, faults []Fault) {
	seen := map[string]Job{}
	for _, job := range jobs {
		if other, again := seen[job.Name]; again {
			faults = append(faults, job.Fault("name", fmt.Sprintf("is %q a second time, after %s:%d; within a set, a name is one job", job.Name, other.File, other.line("name"))))
			continue
		}
		seen[job.Name] = job
		first = append(first, job)
	}
	return first, faults
}

// Fault is a fault of the job at a path such as config.headers or tags[3]. Where nothing
// stands there, it is at the nearest part around it.
func (j Job) Fault(path, text string) Fault {
	return Fault{File: j.File, Line: j.line(path), Text: strings.TrimPrefix(path+": ", ": ") + text}
}

// step is a name or an index of a path.
var step = regexp.MustCompile(`[^.\[\]]+`)

func (j Job) line(path string) int {
	if j.root == nil {
		return 0
	}
	node, line := j.root, j.root.Line
	for _, name := range step.FindAllString(path, -1) {
		at, inner := below(node, name)
		if inner == nil {
			break
		}
		node, line = inner, at.Line
	}
	return line
}

// below is the value of a name or an index, and the node that stands where it begins.
func below(node *yaml.Node, name string) (at, inner *yaml.Node) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == name {
				return node.Content[i], node.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i]
		}
	}
	return nil, nil
}

// reader reads one file.
type reader struct {
	file   string
	left   int // how many values more it takes
	jobs   []Job
	faults []Fault
}

func (r *reader) fault(node *yaml.Node, format string, args ...any) {
	r.faults = append(r.faults, Fault{File: r.file, Line: node.Line, Text: fmt.Sprintf(format, args...)})
}

// lineOf is where the parser says that it stopped.
var lineOf = regexp.MustCompile(`^(?:yaml: )?line (\d+): (.*)`)

func (r *reader) unreadable(err error) {
	f := Fault{File: r.file, Text: strings.TrimPrefix(err.Error(), "yaml: ")}
	if parts := lineOf.FindStringSubmatch(err.Error()); parts != nil {
		f.Line, _ = strconv.Atoi(parts[1]) // digits
		f.Text = parts[2]
	}
	r.faults = append(r.faults, f)
}

func (r *reader) document(root *yaml.Node) {
	switch {
	case root.Kind == yaml.SequenceNode:
		for _, item := range root.Content {
			r.job(item)
		}
	case root.Kind == yaml.ScalarNode && root.Tag == "!!null": // an empty document
	default:
		r.job(root)
	}
}

func (r *reader) job(root *yaml.Node) {
	before := len(r.faults)
	value := r.value(root)
	definition, ok := value.(map[string]any)
	name, named := definition["name"].(string)
	switch {
	case len(r.faults) > before:
		return
	case !ok:
		r.fault(root, "is no job: a job is a mapping with a name")
		return
	case !named || name == "":
		r.fault(root, "the job has no name")
		return
	}
	text, err := json.Marshal(definition)
	if err != nil {
		r.fault(root, "cannot be written as JSON: %v", err)
		return
	}
	r.jobs = append(r.jobs, Job{Name: name, File: r.file, JSON: text, root: root})
}

// value is a node as JSON has it. Times stay as they are written.
func (r *reader) value(node *yaml.Node) any {
	if r.left--; r.left < 0 {
		if r.left == -1 {
			r.fault(node, "the file has more than %d values, those that aliases repeat counted each time", maxNodes)
		}
		return nil
	}
	switch node.Kind {
	case yaml.AliasNode:
		return r.value(node.Alias)
	case yaml.SequenceNode:
		list := make([]any, len(node.Content))
		for i, item := range node.Content {
			list[i] = r.value(item)
		}
		return list
	case yaml.MappingNode:
		return r.mapping(node)
	}
	return r.scalar(node)
}

// mapping reads names and values; those that << brings stand behind those that are written.
func (r *reader) mapping(node *yaml.Node) any {
	object := map[string]any{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, inner := node.Content[i], node.Content[i+1]
		if key.Tag == "!!merge" {
			merged = append(merged, inner)
			continue
		}
		if _, again := object[key.Value]; again {
			r.fault(key, "%s stands more than once", key.Value)
		}
		object[key.Value] = r.value(inner)
	}
	for _, inner := range merged {
		for _, source := range r.sources(inner) {
			for name, value := range source {
				if _, written := object[name]; !written {
					object[name] = value
				}
			}
		}
	}
	return object
}

// sources are the mappings that << brings, one or a list.
func (r *reader) sources(node *yaml.Node) (all []map[string]any) {
	value := r.value(node)
	list, isList := value.([]any)
	if !isList {
		list = []any{value}
	}
	for _, one := range list {
		source, ok := one.(map[string]any)
		if !ok && r.left > 0 {
			r.fault(node, "<< brings a mapping, or a list of them")
		}
		all = append(all, source)
	}
	return all
}

// jsonNumber is a number as JSON writes it.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

func (r *reader) scalar(node *yaml.Node) any {
	switch {
	case node.Tag == "!!null":
		return nil
	case node.Tag == "!!bool":
		return slices.Contains([]string{"true", "True", "TRUE"}, node.Value)
	case (node.Tag == "!!int" || node.Tag == "!!float") && jsonNumber.MatchString(node.Value):
		return json.Number(node.Value) // with all its digits
	case node.Tag == "!!int":
		var number int64
		if err := node.Decode(&number); err != nil {
			r.fault(node, "%s is no number that JSON has", node.Value)
		}
		return number
	case node.Tag == "!!float":
		r.fault(node, "%s is no number that JSON has", node.Value)
		return nil
	}
	return node.Value
}
