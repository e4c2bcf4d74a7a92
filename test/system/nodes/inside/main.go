package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	command := "pause"
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	var err error
	switch command {
	case "pause":
		<-ctx.Done()
	case "serve":
		err = serve(ctx)
	case "get":
		err = get(ctx, os.Args[2:])
	case "operator":
		err = operator(ctx)
	case "client":
		err = client(ctx)
	default:
		err = fmt.Errorf("unknown command %q", command)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "inside:", err)
		os.Exit(1)
	}
}

// get asks URL for what the Pod leaves as its message. It tries again for a while: a Service may be
// new to this node.
func get(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("get needs a URL")
	}
	client := &http.Client{Timeout: 5 * time.Second}
	deadline := time.Now().Add(20 * time.Second)
	for {
		body, err := ask(ctx, client, args[0])
		if err == nil {
			return os.WriteFile("/dev/termination-log", body, 0o644)
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func ask(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(io.LimitReader(resp.Body, 4096))
}

// serve answers with the name of the Pod at port 8080. After a POST of /broken it is not healthy
// any more, after one of /unready it is not ready.
func serve(ctx context.Context) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	var broken, unready atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, name) })
	state := func(path string, bad *atomic.Bool) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			if bad.Load() {
				http.Error(w, "no", http.StatusInternalServerError)
			}
		})
	}
	state("/healthz", &broken)
	state("/readyz", &unready)
	mux.HandleFunc("POST /broken", func(http.ResponseWriter, *http.Request) { broken.Store(true) })
	mux.HandleFunc("POST /unready", func(http.ResponseWriter, *http.Request) { unready.Store(true) })
	server := &http.Server{Addr: ":8080", Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	fmt.Println("serving as", name)
	if err := server.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}

// client reads its own Pod and writes a ConfigMap of the Pod's name, by the token and the address
// that a Pod finds, and then waits for its end.
func client(ctx context.Context) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	name := os.Getenv("HOSTNAME")
	namespace, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return err
	}
	pod, err := c.CoreV1().Pods(string(namespace)).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get my pod: %w", err)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"node": pod.Spec.NodeName, "server": config.Host}}
	if _, err := c.CoreV1().ConfigMaps(string(namespace)).Create(ctx, cm, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("write a ConfigMap: %w", err)
	}
	fmt.Println("wrote", name, "by", config.Host)
	<-ctx.Done()
	return nil
}
