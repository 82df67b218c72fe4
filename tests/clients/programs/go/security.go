// How clients of both libraries reach a listener with TLS and logins, after the command "secure".
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	franzscram "github.com/twmb/franz-go/pkg/sasl/scram"
	"github.com/xdg-go/scram"
)

const connectPatience = 10 * time.Second

type security struct {
	tls                             *tls.Config
	mechanism, user, password, token string
}

var secured *security // of every client that is made; nil: plain

func secure(wanted command) error {
	issuer, err := os.ReadFile(wanted.CA)
	if err != nil {
		return err
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(issuer) {
		return fmt.Errorf("no certificate in %s", wanted.CA)
	}
	secured = &security{
		&tls.Config{RootCAs: trusted}, wanted.Mechanism, wanted.User, wanted.Password, wanted.Token,
	}
	return nil
}

func franzSecurity() []kgo.Opt {
	if secured == nil {
		return nil
	}
	var login sasl.Mechanism
	auth := franzscram.Auth{User: secured.user, Pass: secured.password}
	switch secured.mechanism {
	case "PLAIN":
		login = plain.Auth{User: secured.user, Pass: secured.password}.AsMechanism()
	case "SCRAM-SHA-256":
		login = auth.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		login = auth.AsSha512Mechanism()
	default:
		login = oauth.Auth{Token: secured.token}.AsMechanism()
	}
	return []kgo.Opt{kgo.DialTLSConfig(secured.tls.Clone()), kgo.SASL(login)}
}

func (f *franz) connect() error {
	made, err := f.client()
	if err != nil {
		return err
	}
	defer made.Close()
	until, done := context.WithTimeout(context.Background(), connectPatience)
	defer done()
	return made.Ping(until)
}

// sarama leaves SCRAM to another library.
type saramaScram struct {
	hash  scram.HashGeneratorFcn
	steps *scram.ClientConversation
}

func (s *saramaScram) Begin(user, password, authzID string) error {
	client, err := s.hash.NewClient(user, password, authzID)
	if err == nil {
		s.steps = client.NewConversation()
	}
	return err
}

func (s *saramaScram) Step(challenge string) (string, error) { return s.steps.Step(challenge) }

func (s *saramaScram) Done() bool { return s.steps.Done() }

type saramaToken string

func (t saramaToken) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

func saramaSecurity(settings *sarama.Config) {
	if secured == nil {
		return
	}
	settings.Net.TLS.Enable = true
	settings.Net.TLS.Config = secured.tls.Clone()
	login := &settings.Net.SASL
	login.Enable = true
	login.Mechanism = sarama.SASLMechanism(secured.mechanism)
	login.User, login.Password = secured.user, secured.password
	login.TokenProvider = saramaToken(secured.token)
	hash := scram.SHA256
	if secured.mechanism == "SCRAM-SHA-512" {
		hash = scram.SHA512
	}
	login.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &saramaScram{hash: hash} }
}

func (s *saramas) connect() error {
	settings := saramaSettings()
	settings.Metadata.Retry.Max = 0
	made, err := sarama.NewClient([]string{s.bootstrap}, settings)
	if err != nil {
		return err
	}
	return made.Close()
}
