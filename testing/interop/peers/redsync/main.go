// Drives redsync's Mutex, over one server or several, as ../PROTOCOL.md says. It has no watchdog, and asks again after 50 to 250 ms.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

// How long a counting worker waits for the lock before it looks at the time again.
const patience = 20 * time.Second

// As many tries as fit into any wait: the wait itself is the limit.
const tries = 1_000_000

type fields map[string]any

type driver struct {
	sync *redsync.Redsync
	held map[string]*redsync.Mutex
}

func main() {
	pools := []redsyncredis.Pool{}
	for port := range strings.SplitSeq(os.Args[1], ",") {
		pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})))
	}
	d := driver{sync: redsync.New(pools...), held: map[string]*redsync.Mutex{}}
	answer(fields{"ready": true, "library": "redsync", "version": version()})
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() && commands.Text() != "quit" {
		if told, err := d.run(strings.Fields(commands.Text())); err != nil {
			answer(fields{"error": err.Error()})
		} else {
			answer(told)
		}
	}
}

func (d *driver) run(words []string) (fields, error) {
	name := words[1]
	switch words[0] {
	case "lock":
		return d.lock(name, millis(words[2]), millis(words[3]))
	case "unlock":
		mutex, held := d.held[name]
		if !held {
			return nil, errors.New("it was not taken")
		}
		delete(d.held, name)
		return release(mutex)
	case "renew":
		renewed, err := d.held[name].Extend()
		return fields{"renewed": renewed}, expected(err)
	case "stranger":
		return release(d.sync.NewMutex(name, redsync.WithValue("stranger")))
	case "count":
		workers, _ := strconv.Atoi(words[4])
		return d.count(name, words[2], millis(words[3]), workers, millis(words[5]))
	case "solo":
		pairs, _ := strconv.Atoi(words[2])
		return d.solo(name, pairs)
	case "turns":
		return d.turns(name, millis(words[2]), millis(words[3]))
	}
	return nil, errors.New("no command " + words[0])
}

func (d *driver) lock(name string, lease, wait time.Duration) (fields, error) {
	mutex, err := d.mutex(name, lease)
	if err != nil {
		return nil, err
	}
	from := now()
	got, err := acquire(mutex, wait)
	at := now()
	if got {
		d.held[name] = mutex
	}
	return fields{"got": got, "from_us": from, "at_us": at}, err
}

func (d *driver) mutex(name string, lease time.Duration) (*redsync.Mutex, error) {
	if lease == 0 {
		return nil, errors.New("redsync keeps no lock alive")
	}
	return d.sync.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(tries)), nil
}

func acquire(mutex *redsync.Mutex, wait time.Duration) (bool, error) {
	if wait == 0 {
		err := mutex.TryLock()
		return err == nil, expected(err)
	}
	limit, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	err := mutex.LockContext(limit)
	return err == nil, expected(err)
}

func release(mutex *redsync.Mutex) (fields, error) {
	from := now()
	released, err := mutex.Unlock()
	return fields{"released": released, "from_us": from, "at_us": now()}, expected(err)
}

// Being busy, too late or not the holder is an answer; the rest are faults.
func expected(err error) error {
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) || errors.Is(err, redsync.ErrLockAlreadyExpired) ||
		errors.Is(err, redsync.ErrExtendFailed) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

func (d *driver) count(name, file string, span time.Duration, workers int, lease time.Duration) (fields, error) {
	end := time.Now().Add(span)
	type result struct {
		done int
		err  error
	}
	results := make(chan result)
	for range workers {
		go func() {
			done, err := d.countUntil(end, name, file, lease)
			results <- result{done, err}
		}()
	}
	total, failed := 0, error(nil)
	for range workers {
		one := <-results
		total += one.done
		failed = errors.Join(failed, one.err)
	}
	return fields{"count": total}, failed
}

func (d *driver) countUntil(end time.Time, name, file string, lease time.Duration) (done int, err error) {
	counter, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer counter.Close()
	for time.Now().Before(end) {
		if name == "-" {
			err = addOne(counter)
		} else {
			err = d.countOnce(counter, name, lease)
		}
		if err != nil {
			return done, err
		}
		done++
	}
	return done, nil
}

func (d *driver) countOnce(counter *os.File, name string, lease time.Duration) error {
	mutex, err := d.mutex(name, lease)
	if err != nil {
		return err
	}
	if got, err := acquire(mutex, patience); !got {
		return errors.Join(errors.New("no turn within the time to wait"), err)
	}
	if err := addOne(counter); err != nil {
		return err
	}
	if released, err := mutex.Unlock(); !released {
		return errors.Join(errors.New("the lock was lost while counting"), err)
	}
	return nil
}

// With the expiry that redsync has by itself.
func (d *driver) solo(name string, pairs int) (fields, error) {
	mutex := d.sync.NewMutex(name)
	times := make([]time.Duration, pairs)
	for pair := range times {
		from := time.Now()
		if err := mutex.Lock(); err != nil {
			return nil, err
		}
		if _, err := mutex.Unlock(); err != nil {
			return nil, err
		}
		times[pair] = time.Since(from)
	}
	slices.Sort(times)
	quantile := func(percent int) float64 { return float64(times[(pairs-1)*percent/100]) / 1e3 }
	return fields{"p50_us": quantile(50), "p99_us": quantile(99)}, nil
}

func (d *driver) turns(name string, span, poll time.Duration) (fields, error) {
	mutex := d.sync.NewMutex(name, redsync.WithTries(tries), redsync.WithRetryDelay(poll))
	turns := [][2]int64{}
	for end := time.Now().Add(span); time.Now().Before(end); {
		if err := mutex.Lock(); err != nil {
			return nil, err
		}
		at := now()
		turns = append(turns, [2]int64{at, now()})
		if _, err := mutex.Unlock(); err != nil {
			return nil, err
		}
	}
	return fields{"turns": turns}, nil
}

func addOne(counter *os.File) error {
	digits := make([]byte, 12)
	if _, err := counter.ReadAt(digits, 0); err != nil {
		return err
	}
	value, err := strconv.Atoi(string(digits))
	if err != nil {
		return err
	}
	runtime.Gosched()
	_, err = counter.WriteAt([]byte(fmt.Sprintf("%012d", value+1)), 0)
	return err
}

func millis(text string) time.Duration {
	number, _ := strconv.Atoi(text)
	return time.Duration(number) * time.Millisecond
}

// CLOCK_MONOTONIC, as every driver counts.
func now() int64 {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		panic(err)
	}
	return at.Nano() / 1000
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/go-redsync/redsync/v4" {
				return strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	return "unknown"
}

func answer(told fields) {
	line, err := json.Marshal(told)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}
