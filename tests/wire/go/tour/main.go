// What a user of the official Go client does. The arguments are a connection string, a scenario
// and its entities; it prints what it saw, one line per fact.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// What a partitioned entity takes as one batch, and gives back in order.
var key = "k"

// What an issuer has signed, in place of a key.
var token = os.Getenv("PEEKLOCK_TOKEN")

var scenarios = map[string]func(*tour, ...string){
	"settling":       settling,
	"scheduling":     scheduling,
	"sessions":       sessions,
	"topics":         topics,
	"refusals":       refusals,
	"administration": administration,
}

// tour is one client on its way.
type tour struct {
	ctx        context.Context
	connection string
	client     *azservicebus.Client
}

func main() {
	connection, scenario, entities := os.Args[1], os.Args[2], os.Args[3:]
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	t := &tour{ctx: ctx, connection: connection}
	t.client = t.open(connection)
	scenarios[scenario](t, entities...)
	check(t.client.Close(ctx))
}

// open gives a client that says at once what was refused. With a token in place of a key, the connection
// is host and port.
func (t *tour) open(connection string) *azservicebus.Client {
	options := &azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}}
	if token != "" {
		options.CustomEndpoint = connection
		host, _, _ := strings.Cut(connection, ":")
		return must(azservicebus.NewClient(host, webToken{}, options))
	}
	return must(azservicebus.NewClientFromConnectionString(connection, options))
}

// webToken is a credential: it gives what an issuer has signed.
type webToken struct{}

func (webToken) GetToken(_ context.Context, asked policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if len(asked.Scopes) != 1 || asked.Scopes[0] != "https://servicebus.azure.net//.default" {
		return azcore.AccessToken{}, fmt.Errorf("asked for %v", asked.Scopes)
	}
	return azcore.AccessToken{Token: token, ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func (t *tour) sender(entity string) *azservicebus.Sender {
	return must(t.client.NewSender(entity, nil))
}

func (t *tour) receiver(queue string, options *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	return must(t.client.NewReceiverForQueue(queue, options))
}

// source is a receiver with or without a session.
type source interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

// take receives so many messages, however they are split.
func (t *tour) take(from source, count int) []*azservicebus.ReceivedMessage {
	var taken []*azservicebus.ReceivedMessage
	for len(taken) < count {
		taken = append(taken, must(from.ReceiveMessages(t.ctx, count-len(taken), nil))...)
	}
	return taken
}

func (t *tour) one(from source) *azservicebus.ReceivedMessage {
	return t.take(from, 1)[0]
}

func message(text string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(text), PartitionKey: &key}
}

func say(facts ...any) {
	fmt.Println(facts...)
}

// code is how the client names an error.
func code(err error) string {
	var known *azservicebus.Error
	if errors.As(err, &known) {
		return string(known.Code)
	}
	return fmt.Sprint(err)
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func pointer[T any](value T) *T {
	return &value
}
