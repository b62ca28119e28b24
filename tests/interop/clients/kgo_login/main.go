// Produce records and consume them in a group, by a login within TLS; print each value that came back on a line.
//
//	kgo_login ADDRESS CA MECHANISM USER PASSWORD TOPIC VALUE...
//
// The password of OAUTHBEARER is a token. Exit code 3: the broker refused the login.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func mechanism(name, user, password string) (sasl.Mechanism, error) {
	switch name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return oauth.Auth{Token: password}.AsMechanism(), nil
	}
	return nil, fmt.Errorf("no such mechanism: %s", name)
}

func run(address, ca, name, user, password, topic string, values []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	pem, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(pem) {
		return fmt.Errorf("no certificate in %s", ca)
	}
	login, err := mechanism(name, user, password)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(address),
		kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}),
		kgo.SASL(login),
		kgo.AllowAutoTopicCreation(),
		kgo.DefaultProduceTopic(topic),
		kgo.ConsumerGroup(topic),
		kgo.ConsumeTopics(topic),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	for _, value := range values {
		if err := client.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
			return err
		}
	}
	for left := len(values); left > 0; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Println(string(record.Value))
			left--
		})
	}
	return client.CommitUncommittedOffsets(ctx)
}

// A refused token is answered with data, of which the client only says that it did not expect any.
func refused(err error) bool {
	return errors.Is(err, kerr.SaslAuthenticationFailed) ||
		err != nil && strings.Contains(err.Error(), "unexpected data in oauth response")
}

func main() {
	if len(os.Args) < 7 {
		fmt.Fprintln(os.Stderr, "kgo_login ADDRESS CA MECHANISM USER PASSWORD TOPIC VALUE...")
		os.Exit(2)
	}
	arg := os.Args[1:]
	err := run(arg[0], arg[1], arg[2], arg[3], arg[4], arg[5], arg[6:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if refused(err) {
		os.Exit(3)
	}
	if err != nil {
		os.Exit(1)
	}
}
