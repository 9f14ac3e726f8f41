"""A model of a Standard namespace with live traffic, consumers and a drain: no clock, no sockets.

The namespace grants credits at the start of each second, serves an operation that finds any as a
whole, and takes what it lacks from the next second, as the embedded broker does. Every message
that is accepted is received by a consumer, which costs a credit, too.
"""

import heapq
import random

from pairbus.syphon.rates import AdaptiveRate, SendingPace, ceiling_of

CREDITS = 1000
CEILING = ceiling_of(CREDITS, 1 / 3)
BATCH, GAP = 10.0, 0.3  # seconds: a micro-batch, and the time until the next one sends
BUSY_WAIT = 0.25


class Namespace:
    """Credits by the second; what is overdrawn is owed."""

    def __init__(self, credits=CREDITS):
        self.credits, self._balance, self._second = credits, credits, 0

    def balance(self, now):
        if int(now) != self._second:
            gained = (int(now) - self._second) * self.credits
            self._balance = min(self.credits, min(0, self._balance) + gained)
            self._second = int(now)
        return self._balance

    def send(self, now, messages):
        if self.balance(now) <= 0:
            return False
        self._balance -= messages
        return True

    def receive(self, now, messages):
        self.balance(now)
        self._balance -= messages  # a message for a waiting receiver is charged in any case


class Consumer:
    """Receives what is there; without credits its next receive waits for the next second."""

    def __init__(self, namespace):
        self.namespace, self.waiting, self.received = namespace, 0, 0

    def turn(self, now):
        if self.waiting and self.namespace.balance(now) > 0:
            some = min(50, self.waiting)
            self.namespace.receive(now, some)
            self.waiting -= some
            self.received += some


class Model:
    """Runs live senders, consumers and a drain; `hiccups` a second stop them all for a moment."""

    def __init__(self, live, seed, *, hiccups=0.0, tasks=1):
        self.random, self.live = random.Random(seed), live
        self.namespace = Namespace()
        self.consumer = Consumer(self.namespace)
        self.rate = AdaptiveRate.begin(CEILING)
        self.hiccups, self.tasks = hiccups, tasks
        self.drained = self.busy = self.live_sent = self.live_refused = 0
        self.now = self.random.random()
        self._events = []
        self._begin_batch()
        if live:
            self._at(self.now, self._send_live)
        if hiccups:
            self._at(self.now + self.random.expovariate(hiccups), self._hiccup)

    def _at(self, when, act):
        heapq.heappush(self._events, (when, self.random.random(), act))

    def run(self, seconds):
        end = self.now + seconds
        while self._events and self._events[0][0] < end:
            when, _, act = heapq.heappop(self._events)
            self.now = max(self.now, when)
            act(when)
            self.consumer.turn(self.now)
        self.now = end

    def _hiccup(self, when):
        self.now += self.random.uniform(0.0, 0.1)  # all that is due meanwhile comes later, together
        self._at(when + self.random.expovariate(self.hiccups), self._hiccup)

    def _send_live(self, when):
        is_accepted = self.namespace.send(self.now, 1)
        self.live_sent += 1
        self.live_refused += not is_accepted
        self.consumer.waiting += is_accepted
        self._at(when + 1 / self.live, self._send_live)

    def _begin_batch(self, _when=0.0):
        self._ends = self.now + BATCH
        self._running = self.tasks
        self._shares = []
        for _ in range(self.tasks):
            pace = SendingPace(self.rate.share(self.tasks), self.now)
            self._at(self.now, lambda _when, pace=pace: self._drain(pace))

    def _drain(self, pace):
        if self.now >= self._ends:
            self._shares.append(pace.rate)
            if len(self._shares) == self.tasks:
                self.rate = self.rate.joined(self._shares, self.tasks)
                self._at(self.now + GAP, self._begin_batch)
            return
        wait = pace.wait(self.now)
        if not wait:
            messages = pace.allowance(self.now)
            if self.namespace.send(self.now, messages):
                self.drained += messages
                self.consumer.waiting += messages
                pace.sent(self.now, messages)
            else:
                self.busy += 1
                pace.busy(self.now, self.now, BUSY_WAIT)
            wait = pace.wait(self.now)
        self._at(self.now + max(wait, 0.001), lambda _when: self._drain(pace))
