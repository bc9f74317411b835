//go:build interop

//part:interop

package interop_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/internal/workshop/check"
)

const jar = "target/interop.jar"

// java is a JVM that runs Redisson.
type java struct {
	cmd    *exec.Cmd
	stderr *bytes.Buffer // read after the end only
	ended  chan struct{}

	mu      sync.Mutex
	stdin   io.WriteCloser
	last    int
	waiting map[string]chan answer
}

type answer struct{ value, err string }

// startJava starts a JVM whose watchdog keeps locks for lease, on one Redis or more.
func startJava(t testing.TB, lease time.Duration, urls ...string) *java {
	t.Helper()
	args := append([]string{
		// A quick start is worth more here than a quick program.
		"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"-jar", jar, strconv.FormatInt(lease.Milliseconds(), 10),
	}, urls...)
	cmd := exec.Command("java", args...)
	j := &java{cmd: cmd, stderr: new(bytes.Buffer), ended: make(chan struct{}), waiting: make(map[string]chan answer)}
	cmd.Stderr = j.stderr
	j.stdin = check.Value(cmd.StdinPipe())(t)
	stdout := check.Value(cmd.StdoutPipe())(t)
	err := cmd.Start()
	check.Need(t, err == nil, "start Java (install a JDK of version 17 or newer): %v", err)
	ready := make(chan struct{})
	go func() {
		defer close(j.ended)
		j.read(stdout, ready)
		_ = cmd.Wait() // how it ended is in stderr
	}()
	t.Cleanup(func() {
		j.kill()
		if t.Failed() {
			t.Logf("stderr of Java:\n%s", j.stderr)
		}
	})
	select {
	case <-ready:
	case <-j.ended:
		t.Fatalf("Java ended at once (was %s built? `make faults PART=interop` does):\n%s", jar, j.stderr)
	case <-time.After(check.Deadline):
		t.Fatal("Java was never ready")
	}
	return j
}

// read hands the answers to those who wait for them, until the JVM ends.
func (j *java) read(stdout io.Reader, ready chan<- struct{}) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if lines.Text() == "ready" {
			close(ready)
			continue
		}
		id, rest, _ := strings.Cut(lines.Text(), " ")
		kind, value, _ := strings.Cut(rest, " ")
		a := answer{value: value}
		if kind != "ok" {
			a = answer{err: value}
		}
		j.mu.Lock()
		if to := j.waiting[id]; to != nil {
			to <- a
		}
		delete(j.waiting, id)
		j.mu.Unlock()
	}
}

// kill ends the JVM with SIGKILL and waits until it is gone.
func (j *java) kill() {
	_ = j.cmd.Process.Kill() // an error means that it has ended
	<-j.ended
}

// thread is one thread of the JVM, which is what owns locks there. It obeys one order at a time.
type thread struct {
	java *java
	name string
}

func (j *java) thread(name string) thread { return thread{j, name} }

// order is one that the JVM may still be busy with.
type order struct {
	text   string
	answer chan answer
}

// begin gives an order; it does not wait for the answer.
func (th thread) begin(t testing.TB, verb, kind, lock string, args ...any) order {
	t.Helper()
	j := th.java
	words := []string{th.name, verb, kind, lock}
	for _, arg := range args {
		words = append(words, fmt.Sprint(arg))
	}
	o := order{strings.Join(words, " "), make(chan answer, 1)}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	id := strconv.Itoa(j.last)
	j.waiting[id] = o.answer
	if _, err := io.WriteString(j.stdin, id+" "+o.text+"\n"); err != nil {
		t.Fatalf("order %q of Java: %v", o.text, err)
	}
	return o
}

// wait waits for the answer.
func (o order) wait(t testing.TB) answer {
	t.Helper()
	return check.Receive(t, "Java's answer to "+o.text, o.answer)
}

// want waits for an answer that must be this one; "refused" is an IllegalMonitorStateException.
func (o order) want(t testing.TB, value string) {
	t.Helper()
	a := o.wait(t)
	good := a.err == "" && a.value == value
	if value == "refused" {
		good = strings.HasPrefix(a.err, "java.lang.IllegalMonitorStateException")
	}
	check.Need(t, good, "Java answered %q with %q, error %q; want %q", o.text, a.value, a.err, value)
}
