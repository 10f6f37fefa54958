package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// answerWithin is how long a person has to answer: a terminal may have nobody
// in front of it.
const answerWithin = 30 * time.Second

// person is who started the program.
type person struct {
	in    io.Reader
	out   io.Writer
	start sync.Once
	lines chan string // closed at the end of in
}

func newPerson(in io.Reader, out io.Writer) *person {
	return &person{in: in, out: out, lines: make(chan string)}
}

// confirm tells the person what is going to be installed. On a terminal it asks
// first; elsewhere the line is all.
func (p *person) confirm(ctx context.Context, sentence string) bool {
	if !foreground(p.in) || !foreground(p.out) {
		_, err := fmt.Fprintln(p.out, sentence)
		return err == nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return p.ask(ctx, sentence)
}

// ask puts a question whose answer is yes unless the person says no. It gives up
// with its context: yes when nobody answered in time, no when the program is
// told to stop. A late answer is one to the next question.
func (p *person) ask(ctx context.Context, sentence string) bool {
	fmt.Fprintf(p.out, "%s. Go on? [Y/n] ", sentence)
	p.start.Do(func() { go p.read() })
	select {
	case said := <-p.lines:
		return !strings.HasPrefix(strings.ToLower(strings.TrimSpace(said)), "n")
	case <-ctx.Done():
		fmt.Fprintln(p.out)
		return errors.Is(ctx.Err(), context.DeadlineExceeded)
	}
}

// read waits for lines until the program ends: nothing ends the wait for a
// terminal.
func (p *person) read() {
	defer close(p.lines)
	for lines := bufio.NewScanner(p.in); lines.Scan(); {
		p.lines <- lines.Text()
	}
}

// foreground reports whether a stream is a terminal that we may read from: it
// stops a process in the background.
func foreground(stream any) bool {
	f, file := stream.(*os.File)
	if !file {
		return false
	}
	var group int32
	_, _, failed := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&group)))
	return failed == 0 && int(group) == syscall.Getpgrp()
}
