package executor

// Stream names where a run wrote a line.
type Stream string

// The streams of a run. A function's logger and a script's console write Log.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
	Log    Stream = "log"
)

// Reporter takes what a run says while it runs: its output and how far it is. Calls of
// one run keep their order; any number of goroutines may call. No call blocks for long:
// beyond the run's bounds output is dropped and counted. After the run has ended, calls
// change nothing.
type Reporter interface {
	// Output keeps text as it was written at this moment. The caller may use the
	// slice again.
	Output(stream Stream, text []byte)
	// Progress says how far the run is, from 0 to 100 (others are brought there), and
	// with what it is busy: at most 200 bytes are kept. Only the last one counts.
	Progress(percent int, message string)
}

// silent is the Reporter of a run to which nobody listens.
type silent struct{}

func (silent) Output(Stream, []byte) {}
func (silent) Progress(int, string)  {}
