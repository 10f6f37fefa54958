package httpcall

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/vm"

	"github.com/scheduler-service/scheduler/internal/executor"
)

// The bounds of successWhen. Nothing ends an expression that runs, so its cost is bounded
// by its form: see admit. An answer is at most keepBody bytes, and no operation makes
// it larger.
const (
	maxCondition  = 1000 // bytes
	maxNodes      = 100
	maxPatterns   = 4
	maxPattern    = 100 // bytes
	maxElements   = 100_000
	maxConditions = 1000 // compiled ones that are kept
)

// functions and operators that an expression may use. Those that are missing make values
// larger (map, repeat, ..), or cost more than the length of what they read.
var (
	functions = []string{"all", "any", "none", "one", "count", "filter", "find", "len", "type", "int", "float", "lower", "upper", "trim", "first", "last"}
	operators = []string{
		"==", "!=", "<", "<=", ">", ">=", "and", "&&", "or", "||", "in", "not in", "??", "+", "-", "*", "/", "%",
		"contains", "startsWith", "endsWith", "matches",
	}
)

// answered is what an expression sees of an answer.
type answered struct {
	Status  int               `expr:"status"`
	Headers map[string]string `expr:"headers"` // by names in small letters
	Body    any               `expr:"body"`    // the value where it is JSON, else the text
}

// conditions keeps compiled expressions, which many attempts share.
type conditions struct {
	mu   sync.Mutex
	kept map[string]*vm.Program
}

// compile reads and type-checks an expression. The error is for the tenant.
func (c *conditions) compile(text string) (*vm.Program, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if program, ok := c.kept[text]; ok {
		return program, nil
	}
	if len(text) > maxCondition {
		return nil, fmt.Errorf("must have at most %d bytes", maxCondition)
	}
	tree, err := parser.Parse(text)
	if err != nil {
		return nil, at(err)
	}
	var a admission
	if a.admit(tree.Node, false); a.problem != "" {
		return nil, errors.New(a.problem)
	}
	program, err := expr.Compile(text, expr.Env(answered{}), expr.AsBool(), expr.MaxNodes(2*maxNodes)) // it counts more
	if err != nil {
		return nil, at(err)
	}
	if c.kept == nil || len(c.kept) >= maxConditions {
		c.kept = map[string]*vm.Program{}
	}
	c.kept[text] = program
	return program, nil
}

// at is an error of the expression library in one line.
func at(err error) error {
	var of *file.Error
	if errors.As(err, &of) {
		return fmt.Errorf("%s (at character %d)", strings.ToValidUTF8(of.Message, "\uFFFD"), of.Column+1)
	}
	return err
}

// admission walks an expression and notes the first thing that may cost too much. A
// condition over the items of a list sees its item alone and holds no other one, so that
// each operation reads each part of an answer once.
type admission struct {
	nodes, patterns int
	problem         string
}

func (a *admission) refuse(format string, parts ...any) {
	if a.problem == "" {
		a.problem = fmt.Sprintf(format, parts...)
	}
}

func (a *admission) admit(node ast.Node, inside bool) {
	if a.nodes++; a.nodes > maxNodes {
		a.refuse("has more than %d parts", maxNodes)
		return
	}
	switch n := node.(type) {
	case nil, *ast.NilNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.StringNode, *ast.PointerNode:
	case *ast.IdentifierNode:
		switch {
		case strings.HasPrefix(n.Value, "$"):
			a.refuse("uses %s, which is none of status, headers and body", n.Value)
		case inside:
			a.refuse("uses %s in a condition over a list, which sees its item alone: # or .field", n.Value)
		}
	case *ast.UnaryNode:
		a.admit(n.Node, inside)
	case *ast.BinaryNode:
		a.admitOperator(n)
		a.admit(n.Left, inside)
		a.admit(n.Right, inside)
	case *ast.ChainNode:
		a.admit(n.Node, inside)
	case *ast.MemberNode:
		a.admit(n.Node, inside)
		a.admit(n.Property, inside)
	case *ast.SliceNode:
		for _, part := range []ast.Node{n.Node, n.From, n.To} {
			a.admit(part, inside)
		}
	case *ast.ConditionalNode:
		for _, part := range []ast.Node{n.Cond, n.Exp1, n.Exp2} {
			a.admit(part, inside)
		}
	case *ast.ArrayNode:
		for _, part := range n.Nodes {
			a.admit(part, inside)
		}
	case *ast.BuiltinNode:
		a.admitFunction(n, inside)
	default:
		a.refuse("may use comparisons, and, or, not, in, arithmetic, text operators and the functions %s", strings.Join(functions, ", "))
	}
}

func (a *admission) admitOperator(n *ast.BinaryNode) {
	if !slices.Contains(operators, n.Operator) {
		a.refuse("uses %s, which is none of the operators here: %s", n.Operator, strings.Join(operators, " "))
	}
	if n.Operator != "matches" {
		return
	}
	pattern, constant := n.Right.(*ast.StringNode)
	switch a.patterns++; {
	case !constant:
		a.refuse("uses matches with something else than a text in quotes")
	case len(pattern.Value) > maxPattern || strings.Contains(pattern.Value, "{"):
		a.refuse("uses matches with a pattern of more than %d bytes or with a count in braces", maxPattern)
	case a.patterns > maxPatterns:
		a.refuse("uses matches more than %d times", maxPatterns)
	}
}

func (a *admission) admitFunction(n *ast.BuiltinNode, inside bool) {
	if !slices.Contains(functions, n.Name) {
		a.refuse("uses %s, which is none of the functions here: %s", n.Name, strings.Join(functions, ", "))
	}
	for _, argument := range n.Arguments {
		condition, ok := argument.(*ast.PredicateNode)
		switch {
		case ok && inside:
			a.refuse("has a condition over a list inside another one")
		case ok:
			a.admit(condition.Node, true)
		default:
			a.admit(argument, inside)
		}
	}
}

// readCondition reads the member successWhen.
func (c *call) readCondition(object *executor.Object, kept *conditions) {
	if !object.Read("successWhen", &c.condition, "a text") {
		return
	}
	program, err := kept.compile(c.condition)
	if err != nil {
		object.Fault("successWhen", "expression", err.Error())
	}
	c.program = program
}

// meets says whether an answer meets the job's condition; nil is that it does, or that there
// is none.
func (c *call) meets(a *answer) *executor.Error {
	if c.program == nil {
		return nil
	}
	machine := vm.VM{MemoryBudget: maxElements}
	verdict, err := machine.Run(c.program, a.view())
	if err != nil {
		return &executor.Error{Type: executor.UserError, Message: "successWhen cannot be decided: " + at(err).Error() + a.cut()}
	}
	if met, _ := verdict.(bool); !met {
		return &executor.Error{Type: executor.UserError, Message: "the answer does not meet successWhen: " + c.condition + a.cut()}
	}
	return nil
}

// view is the answer as an expression sees it.
func (a *answer) view() answered {
	v := answered{Status: a.StatusCode, Headers: make(map[string]string, len(a.Headers))}
	for name, value := range a.Headers {
		v.Headers[strings.ToLower(name)] = value
	}
	if a.Truncated || json.Unmarshal(a.raw, &v.Body) != nil {
		v.Body = strings.ToValidUTF8(string(a.raw), "\uFFFD")
	}
	return v
}

// cut says that an expression saw a part of the body.
func (a *answer) cut() string {
	if !a.Truncated {
		return ""
	}
	return fmt.Sprintf(" (the body has more than %d bytes; the condition sees only the first, as a text)", keepBody)
}
