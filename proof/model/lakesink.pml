/*
 * The protocol of lakesink (docs/understand/how-it-works.md), for spin.
 *
 * Two drivers of one checkpoint commit three batches into one branch of one table. Around them: a network that loses
 * requests and answers, delivers late and twice, and lies; a foreign writer; an expirer; a cleaner of orphans; a person
 * who rolls the table back, mends or restores the checkpoint, or starts a new one. All of them act whenever they like, as
 * often as their budget allows. proof/model/run.py runs the configurations; docs/evidence/model.md explains them.
 *
 * A snapshot, and the files and the record that were prepared for it, have one number: `next` counts them up. Positions in
 * the source are tokens: a batch starts at one and ends at another, and what ends at a token can only be followed by what
 * starts there. A set of snapshots is a number, a bit each.
 *
 * In mode upsert (UPSERTS) a batch removes rows too. What it removes is located on one head, see `change_rows`. With
 * LETTERS, some changes are put aside: a batch commits its changelog, its dead letters and its table, in this order, and
 * dead letters are replayed, see `Replayer`.
 *
 * STEP() tells what a driver does, in the words of proof/model/steps.py.
 */

/* ---- the configuration: how many of what -------------------------------------------------------------------------- */

#ifndef DRIVERS
#define DRIVERS 2
#endif
#ifndef BATCHES
#define BATCHES 3
#endif
#ifndef FAULTS
#define FAULTS 0   /* network and storage: lost, late, twice, lied; a load, a job, a record that fails */
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef FOREIGN
#define FOREIGN 0  /* commits of another writer */
#endif
#ifndef EXPIRE
#define EXPIRE 0   /* snapshots that expiry removes */
#endif
#ifndef AGES
#define AGES 0     /* times that hours pass: prepared files come of the age at which cleaners take them */
#endif
#ifndef HASTY
#define HASTY 0    /* times that a cleaner asks for no age, while no driver runs */
#endif
#ifndef ROLLBACKS
#define ROLLBACKS 0
#endif
#ifndef MENDS
#define MENDS 0    /* after a rollback: commits/ and offsets/ above M deleted, the stream stopped meanwhile */
#endif
#ifndef RESTORES
#define RESTORES 0 /* an older checkpoint restored */
#endif
#ifndef RENEWALS
#define RENEWALS 0 /* a new checkpoint: another query, batches from 0 */
#endif
#ifndef RETURNS
#define RETURNS 0  /* the whole table as it was after an earlier batch, ledger and all: its catalog from a backup */
#endif
#ifndef EMPTY
#define EMPTY 0    /* batches without rows, a bit each */
#endif
#ifndef TURNS
#define TURNS 0    /* 1: drivers take turns at the table; 2: and may pass one over, or take none */
#endif
#ifndef UPSERTS
#define UPSERTS 0  /* 1: batches upsert and delete the rows of two keys */
#endif
#ifndef LETTERS
#define LETTERS 0  /* with UPSERTS, 1: some changes are put aside, and replayed whenever somebody likes */
#endif
#ifndef REPLAYERS
#define REPLAYERS 1 /* of those who do: 1 or 2 */
#endif
#ifndef COMPACTIONS
#define COMPACTIONS 0 /* rewrites by another writer, which begin on one head and commit on that or a later one */
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif

#ifndef SNAPSHOTS
#define SNAPSHOTS 8 /* at most 12; a run that needs more says so by an assertion */
#endif
#if SNAPSHOTS > 8
#define set short
#else
#define set byte
#endif
#define TOKENS 10
#define LATE 2
#define BEING_FOREIGN 15

#define BIT(s) (1 << ((s) - 1))
#define HAS(all, s) ((s) != 0 && (((all) >> ((s) - 1)) & 1))

/* ---- what there is ------------------------------------------------------------------------------------------------ */

typedef Snapshot {
  byte par;   /* parent */
  byte seq;   /* sequence number */
  byte bat;   /* the mark: batch id, or BEING_FOREIGN */
  byte qry;   /* the mark: query */
  byte st;    /* where the batch starts */
  byte ver;   /* where it ends; its fingerprint too */
  byte fol;   /* the record: the entry that it follows, 0 for none */
  set cont;   /* own snapshots whose files it holds */
  byte top;   /* where the rows that it holds end */
};
Snapshot sn[SNAPSHOTS + 1];

byte head, entry, tag, seqs;     /* the table: branch, ledger entry and ledger tag by snapshot, last sequence number */
set inmeta;                      /* snapshots in the metadata */
set alive;                       /* prepared files that exist */
byte next = 1;                   /* the next number to give */
byte rec[TOKENS];                /* prepared records, by fingerprint */
set torn, partial;               /* records cut short; files of a job of which a vote was missing */
set old, older;                  /* prepared files beyond prepared-max-age; and beyond what cleaners leave alone */
set props;                       /* entries that were committed as properties only */

byte off, com;                   /* the checkpoint: batches planned, batches committed */
byte qid = 1;                    /* its query */
byte origin;                     /* where its batch 0 starts */
byte cv[BATCHES];                /* where its batches end */
byte mv[BATCHES], ms[BATCHES];   /* where a batch of this id ended and started when it was planned before */
byte tokens = 1;                 /* the next token to give */

byte lateS[LATE], lateH[LATE], lateT[LATE]; /* requests under way: snapshot, asserted head and tag */
byte hold[DRIVERS];              /* what a driver is committing */
byte slow[DRIVERS];              /* times that hours have passed since it began to commit; */
byte list[DRIVERS];              /* and since it wrote the manifest list of its attempt, by its last look */
byte up;                         /* drivers that run */
bit halt;                        /* a batch was refused: nobody starts the stream again until a person has acted */
bit odd;                         /* a person has touched table or checkpoint so that a refusal may follow */

byte faults = FAULTS, crashes = CRASHES, foreign = FOREIGN, expire = EXPIRE, ages = AGES, hasty = HASTY;
byte compactions = COMPACTIONS;
byte rollbacks = ROLLBACKS, mends = MENDS, restores = RESTORES, renewals = RENEWALS, returns = RETURNS;

/* ---- steps, as proof/model/steps.py names them -------------------------------------------------------------------- */

#define IDLE 0
#define BEGUN 1
#define VOTED 2
#define READY 3
#define LOOKED 4
#define SENT 5
#define UNSURE 6
#define LANDED 7
#define FOUND 8
#define BARRED 9
#define ENDED 10

#define BEGIN_COMMIT 0
#define BEGIN_SKIP 1
#define BEGIN_REFUSE 2
#define RECOVERED 3
#define PREPARED 4
#define RECORDED 5
#define ABORTED 6
#define LOOK_COMMIT 7
#define LOOK_SKIP 8
#define LOOK_REFUSE 9
#define ATTEMPT 10
#define ANSWER_LANDED 11
#define ANSWER_NOT_SHOWN 12
#define ANSWER_UNKNOWN 13
#define COMMITTED 14
#define KNOWN 15
#define AGAIN 16
#define REFUSED 17
#define UNRESOLVED 18
#define FAILED 19

#ifdef COUNT_STEPS
c_decl {
  static unsigned char taken[11][20][11];
  static void tell_steps(void) {
    int f, e, t;
    for (f = 0; f < 11; f++) for (e = 0; e < 20; e++) for (t = 0; t < 11; t++)
      if (taken[f][e][t]) printf("TAKEN %d %d %d\n", f, e, t);
  }
  static void took(int f, int e, int t) {
    static int first = 1;
    if (first) { first = 0; atexit(tell_steps); }
    taken[f][e][t] = 1;
  }
}
#define TOOK(f, e, t) c_code { took(f, e, t); }
#else
#define TOOK(f, e, t) skip
#endif

#define STEP(f, e, t) TOOK(f, e, t); printf("@ %d step %d %d %d %d %d %d %d\n", me, f, e, t, n, s, hh, tt)
#define LOOKS(f, e, t) TOOK(f, e, t); printf("@ %d look %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d\n", \
  me, f, e, t, n, qid, b, v, rule, reason, head, tag, led, gone, newest, shown, complete)

/* ---- the verdict -------------------------------------------------------------------------------------------------- */

#define COMMIT 0
#define SKIP 1
#define REFUSE 2

/* A refusal's reason, in the order of proof/model/story.py. */
#define UNKNOWN_HISTORY 1
#define ROLLED_BACK 2
#define NEW_CHECKPOINT 3
#define BATCH_CHANGED 4
#define REWOUND 5
#define GAP 6
#define LEDGER_LOST 7

hidden byte at, oldest, newest, shown, led, rule, reason, verdict, gone, complete, i, ok;
hidden set walk, swept;

#ifdef NO_EVIDENCE
#define EVIDENCE 0
#else
#define EVIDENCE HAS(sn[head].cont, led) /* decision 0001: its manifests are under the head */
#endif
#ifdef MARK_BY_ID
#define SAME_DATA(one, other) 1
#else
#define SAME_DATA(one, other) ((one) == (other))
#endif
#ifdef NO_FINGERPRINT
#define SAME(one, other) 1
#else
#define SAME(one, other) ((one) == (other))
#endif
#ifdef NO_QUERY
#define OTHER_QUERY 0
#define QUERY_OF(mark) ((mark) != 0)
#else
#define OTHER_QUERY (sn[led].qry != qid)
#define QUERY_OF(mark) ((mark) != 0 && sn[mark].qry == qid)
#endif
#ifdef R8_ANY_START
#define AT_8(mark) 1
#else
#define AT_8(mark) (sn[mark].ver == b)
#endif
#ifdef R9_CUT_WALK
#define COMPLETE_9 1
#else
#define COMPLETE_9 complete
#endif
#ifdef TAKE_OVER_ANYWHERE
#define TAKES_OVER(mark) (n == 0)
#else
#define TAKES_OVER(mark) (n == 0 && sn[mark].ver == b)
#endif

/* What the walk from the head shows of batch n of query qid that ends at v. */
inline survey() {
  at = head; walk = 0; oldest = 0; newest = 0; shown = 0;
  do
  :: HAS(inmeta, at) ->
     walk = walk | BIT(at); oldest = sn[at].seq;
     if
     :: sn[at].bat != BEING_FOREIGN ->
        if :: newest == 0 -> newest = at :: else fi;
        if :: shown == 0 && sn[at].bat == n && sn[at].qry == qid && SAME_DATA(sn[at].ver, v) -> shown = at :: else fi
     :: else
     fi;
     at = sn[at].par
  :: else -> break
  od;
#ifdef MARK_BY_EXISTENCE
  i = 1;
  do
  :: i < next ->
     if
     :: HAS(inmeta, i) && sn[i].bat == n && sn[i].qry == qid && sn[i].ver == v -> shown = i
     :: else
     fi;
     i++
  :: else -> break
  od;
  i = 0;
#endif
#ifdef NO_LEDGER
  led = newest;
#else
  led = entry;
#endif
  complete = ((walk == 0 && seqs == 0) || (walk != 0 && oldest <= 1));
#ifdef NO_GONE
  gone = 0;
#else
  gone = (led != 0 && !HAS(walk, led) && !HAS(props, led) &&
    (head == 0 || (walk != 0 && oldest < sn[led].seq) || (HAS(inmeta, led) && !EVIDENCE)));
#endif
}

#define SAYS(number, what, why) rule = number; verdict = what; reason = why

/* Section 4 of the protocol, first match wins. Rules 1 to 3 speak of what is not modelled. */
inline decide() {
  survey();
  if
#ifdef MARK_BY_EXISTENCE
  :: shown != 0 -> SAYS(18, SKIP, 0)
  :: else -> if
#endif
#ifdef SKIP_BY_MAX
  :: led != 0 && n <= sn[led].bat -> SAYS(14, SKIP, 0)
  :: else -> if
#endif
  :: led == 0 && newest != 0 -> SAYS(4, REFUSE, LEDGER_LOST)
  :: else -> if
  :: led == 0 && n > 0 -> SAYS(5, REFUSE, UNKNOWN_HISTORY)
  :: led == 0 && n == 0 -> SAYS(6, COMMIT, 0)
  :: else -> if
  :: gone && shown != 0 -> SAYS(7, SKIP, 0)
  :: gone && shown == 0 && QUERY_OF(newest) && n == sn[newest].bat + 1 && AT_8(newest) -> SAYS(8, COMMIT, 0)
  :: else -> if
  :: gone && shown == 0 && !OTHER_QUERY && newest == 0 && COMPLETE_9 && n == 0 -> SAYS(9, COMMIT, 0)
  :: else -> if
  :: gone && shown == 0 && newest != 0 && !QUERY_OF(newest) && TAKES_OVER(newest) -> SAYS(10, COMMIT, 0)
  :: else -> if
  :: gone -> SAYS(11, REFUSE, ROLLED_BACK)
  :: !gone && OTHER_QUERY && TAKES_OVER(led) -> SAYS(12, COMMIT, 0)
  :: !gone && OTHER_QUERY && !TAKES_OVER(led) -> SAYS(13, REFUSE, NEW_CHECKPOINT)
  :: else -> if
  :: n == sn[led].bat && SAME(sn[led].ver, v) -> SAYS(14, SKIP, 0)
  :: n == sn[led].bat && !SAME(sn[led].ver, v) -> SAYS(15, REFUSE, BATCH_CHANGED)
  :: n == sn[led].bat + 1 && SAME(sn[led].ver, b) -> SAYS(16, COMMIT, 0)
  :: n == sn[led].bat + 1 && !SAME(sn[led].ver, b) -> SAYS(17, REFUSE, BATCH_CHANGED)
  :: n < sn[led].bat && shown != 0 -> SAYS(18, SKIP, 0)
  :: n < sn[led].bat && shown == 0 -> SAYS(19, REFUSE, REWOUND)
#ifdef NO_GAP
  :: n > sn[led].bat + 1 -> SAYS(20, COMMIT, 0)
#else
  :: n > sn[led].bat + 1 -> SAYS(20, REFUSE, GAP)
#endif
  fi fi fi fi fi fi fi
#ifdef SKIP_BY_MAX
  fi
#endif
#ifdef MARK_BY_EXISTENCE
  fi
#endif
}

/* ---- the catalog -------------------------------------------------------------------------------------------------- */

#ifdef NO_HEAD_ASSERTED
#define HEAD_HOLDS(h) 1
#else
#define HEAD_HOLDS(h) (head == (h))
#endif
#ifdef NO_TAG
#define TAG_HOLDS(t) 1
#define SET_TAG(s) skip
#elif defined(NO_TAG_ASSERTED)
#define TAG_HOLDS(t) 1
#define SET_TAG(s) tag = s
#else
#define TAG_HOLDS(t) (tag == (t))
#define SET_TAG(s) tag = s
#endif
#ifdef EMPTY_AS_PROPERTIES
#define AS_PROPERTIES(s) ((EMPTY >> sn[s].bat) & 1)
#else
#define AS_PROPERTIES(s) 0
#endif

/* What must be true: the oracle. The numbers are those of proof/model/story.py. */
#define ROWS_TWICE 1
#define ROWS_MISSING 2
#define FILES_GONE 3
#define FILES_NOT_WHOLE 4
#define OTHERS_ROWS_LOST 5
#define TAKEN_FOR_COMMITTED 6
#define WRONG_REFUSAL 7
#define COMMITTED_FILES_DELETED 8
#define COMMITTED_FILES_OVERWRITTEN 9
#define STALE_ROW 10
#define KEY_TWICE 11
#define LIVE_ROW_LOST 12
#define CHANGE_NOWHERE 13
#define TOLD_TWICE 14
#define LETTER_TWICE 15
#define LETTER_NOT_REPLAYED 16
#define MUST(holds, promise) \
  if :: !(holds) -> printf("@ 0 broken %d 0\n", promise); assert(false) :: else fi

inline must_be_in_table() { /* whoever says so to Spark must be right when it says so */
  ok = 0; i = 1;
  do
  :: i < next ->
     if :: (HAS(sn[head].cont, i) || HAS(props, i)) && sn[i].bat == n && sn[i].ver == v -> ok = 1 :: else fi;
     i++
  :: else -> break
  od;
  i = 0;
  MUST(ok, TAKEN_FOR_COMMITTED);
  ok = 0
}

inline must_follow(s_) { /* what lands starts where the rows under the head end */
  ok = 0; i = 1;
  do
  :: i < next ->
     if :: HAS(sn[head].cont, i) && sn[i].st == sn[s_].st -> ok = 1 :: else fi;
     i++
  :: else -> break
  od;
  i = 0;
  MUST(sn[s_].st == sn[head].top || !ok, ROWS_TWICE);
  MUST(sn[s_].st == sn[head].top, ROWS_MISSING)
}

/*
 * Rows by key. Batch 0 upserts the rows of A and B, batch 1 upserts that of A, batch 2 deletes that of B. A data file has
 * the number of the snapshot that added it, and at most one row of each key: so a file says where the row of a key is.
 */
#if UPSERTS > 0
typedef Rows {
  set livea, liveb; /* under this snapshot: the files with a row of A, of B that no delete removes */
  byte nowa, nowb;  /* under this snapshot: the row that must be live, by the snapshot that wrote it; 0 for none */
  byte ina, inb;    /* the rows in the file that this snapshot added, by the snapshot that wrote them; 0 for none */
#if LETTERS > 0
  byte qa, qb;      /* the sequences of the rows that this snapshot wrote: the batch of the change */
  bit ended;        /* under this snapshot: the last change of B deletes it */
#endif
};
Rows rows[SNAPSHOTS + 1];
byte located[DRIVERS];           /* the head on which a driver has located what its batch removes */
byte lateL[LATE];                /* the same of requests under way */
hidden set outa, outb;

#if LETTERS > 0
/*
 * Batches 0 and 1 upsert A and B, batch 2 deletes B, and each change has its batch for a sequence. A change that is put
 * aside is a bit: 1 and 2 of A in batches 0 and 1, 4, 8 and 16 of B in batches 0 to 2. The row of its key stays.
 */
byte aside;                      /* the changes that are malformed */
byte logs, lets;                 /* batches in the changelog, and in the table of dead letters: a bit each */
byte assigned[4];                /* the letters of each replay, from 1 on */
byte redone;                     /* the newest replay that the table has: its ledger says so */
byte replayed;                   /* letters whose rows have landed: the oracle's own count */

#define IS_ASIDE(bit, n) ((aside >> ((bit) + (n))) & 1)
#define CHANGES_A(n) ((n) < 2 && !IS_ASIDE(0, n))
#define CHANGES_B(n) (!IS_ASIDE(2, n))
#define ADDS_B(n) ((n) < 2 && !IS_ASIDE(2, n))
#ifdef ASIDE_REMOVES
#define REMOVES_A(n) ((n) < 2)
#define REMOVES_B(n) 1
#else
#define REMOVES_A(n) CHANGES_A(n)
#define REMOVES_B(n) CHANGES_B(n)
#endif
#define SET_SEQUENCES(s, a, b) rows[s].qa = a; rows[s].qb = b
#define KEEP_DELETED(s, h) rows[s].ended = rows[h].ended
#define SET_DELETED(s, is) rows[s].ended = is

/* A side table has a ledger of its own. Its commits take the steps of a driver's: here they are one step each. */
#ifdef SIDES_NOT_ASKED
#define tell(side) MUST(!((side >> n) & 1), TOLD_TWICE); side = side | (1 << n)
#else
#define tell(side) side = side | (1 << n)
#endif
#define must_be_told() MUST(((logs & lets) >> n) & 1, CHANGE_NOWHERE)
#else
#define CHANGES_A(n) ((n) < 2)
#define CHANGES_B(n) ((n) != 1)
#define ADDS_B(n) ((n) == 0)
#define REMOVES_A(n) CHANGES_A(n)
#define REMOVES_B(n) CHANGES_B(n)
#define SET_SEQUENCES(s, a, b) skip
#define KEEP_DELETED(s, h) skip
#define SET_DELETED(s, is) skip
#endif
#define LOCATE() located[me - 1] = head
#ifdef OLDER_POSITIONS
#define LOCATE_AGAIN() skip
#else
#define LOCATE_AGAIN() LOCATE()
#endif
#define FORGET_LOCATED() located[me - 1] = 0
#define LOCATED located[me - 1]
#define LATE_LOCATED(k) lateL[k]
#define KEEP_LOCATED(k, l) lateL[k] = l

/* The table is what the batches give that are under the head, one after the other: a row a key, and no older one. */
#define MUST_BE_ONE(live, in, now) \
  ok = 0; i = 1; \
  do \
  :: i < next -> \
     if \
     :: HAS(rows[head].live, i) -> \
        MUST(rows[i].in == rows[head].now, STALE_ROW); \
        MUST(!ok, KEY_TWICE); \
        ok = 1 \
     :: else \
     fi; \
     i++ \
  :: else -> break \
  od; \
  i = 0; \
  MUST(ok || rows[head].now == 0, LIVE_ROW_LOST); \
  ok = 0

inline must_be_one_row_a_key() {
  MUST_BE_ONE(livea, ina, nowa);
  MUST_BE_ONE(liveb, inb, nowb)
}

/* A delete file of a data file replaces the older one: what that deleted must be in it too. */
#ifdef NOT_MERGED
inline replace_deletes(s_) {
  i = 1;
  do
  :: i < next ->
     if
     :: HAS(outa | outb, i) && rows[i].ina != 0 && !HAS(outa, i) -> rows[s_].livea = rows[s_].livea | BIT(i)
     :: else
     fi;
     if
     :: HAS(outa | outb, i) && rows[i].inb != 0 && !HAS(outb, i) -> rows[s_].liveb = rows[s_].liveb | BIT(i)
     :: else
     fi;
     i++
  :: else -> break
  od;
  i = 0
}
#else
#define replace_deletes(s) skip
#endif

/* What lands on h adds its rows, and removes those that it has located on l. */
inline change_rows(s_, h_, l_) {
  outa = 0; outb = 0;
  if :: REMOVES_A(sn[s_].bat) -> outa = rows[l_].livea :: else fi;
  if :: REMOVES_B(sn[s_].bat) -> outb = rows[l_].liveb :: else fi;
  rows[s_].livea = rows[h_].livea & ~outa; rows[s_].nowa = rows[h_].nowa;
  rows[s_].liveb = rows[h_].liveb & ~outb; rows[s_].nowb = rows[h_].nowb;
  replace_deletes(s_);
  outa = 0; outb = 0;
  SET_SEQUENCES(s_, sn[s_].bat, sn[s_].bat); KEEP_DELETED(s_, h_);
  if
  :: CHANGES_A(sn[s_].bat) -> rows[s_].ina = s_; rows[s_].nowa = s_; rows[s_].livea = rows[s_].livea | BIT(s_)
  :: else
  fi;
  if
  :: ADDS_B(sn[s_].bat) -> rows[s_].inb = s_; rows[s_].nowb = s_; rows[s_].liveb = rows[s_].liveb | BIT(s_)
  :: CHANGES_B(sn[s_].bat) && !ADDS_B(sn[s_].bat) -> rows[s_].nowb = 0; SET_DELETED(s_, 1)
  :: else
  fi
}

inline keep_rows(s_, h_) {
  rows[s_].livea = rows[h_].livea; rows[s_].nowa = rows[h_].nowa;
  rows[s_].liveb = rows[h_].liveb; rows[s_].nowb = rows[h_].nowb;
  KEEP_DELETED(s_, h_)
}
#else
#define LOCATE() skip
#define LOCATE_AGAIN() skip
#define FORGET_LOCATED() skip
#define LOCATED 0
#define LATE_LOCATED(k) 0
#define KEEP_LOCATED(k, l) skip
#define must_be_one_row_a_key() skip
#define change_rows(s, h, l) skip
#define keep_rows(s, h) skip
#endif
#if LETTERS == 0
#define must_be_told() skip
#endif
#if LETTERS > 0 && !defined(TABLE_FIRST)
#define FIRST beside
#else
#define FIRST ready
#endif
#ifdef TABLE_FIRST
#define OWN(is) own[me - 1] = is
#define tell_after() if :: own[me - 1] -> tell(logs); tell(lets) :: else fi
bit own[DRIVERS];                /* a driver that has committed the batch itself */
#else
#define OWN(is) skip
#define tell_after() skip
#endif

inline apply(s_, h_, t_, l_) {
  if
  :: HEAD_HOLDS(h_) && TAG_HOLDS(t_) && !HAS(inmeta, s_) && !AS_PROPERTIES(s_) ->
     MUST(h_ == head, OTHERS_ROWS_LOST);
     must_follow(s_);
     MUST(HAS(alive, s_), FILES_GONE);
     MUST(!HAS(torn, s_) && !HAS(partial, s_), FILES_NOT_WHOLE);
     sn[s_].par = h_;
     seqs++; sn[s_].seq = seqs;
     sn[s_].cont = sn[h_].cont | BIT(s_);
     sn[s_].top = sn[s_].ver;
     inmeta = inmeta | BIT(s_);
     change_rows(s_, h_, l_);
     head = s_; entry = s_; SET_TAG(s_);
     must_be_one_row_a_key();
     ok = 1;
     printf("@ 0 lands %d 0\n", s_)
  :: HEAD_HOLDS(h_) && TAG_HOLDS(t_) && AS_PROPERTIES(s_) ->
     entry = s_; props = props | BIT(s_);
     if :: sn[head].top == sn[s_].st -> sn[head].top = sn[s_].ver :: else fi;
     ok = 1;
     printf("@ 0 lands %d 0\n", s_)
  :: else -> ok = 0; printf("@ 0 conflict %d 0\n", s_)
  fi
}

#ifdef STALLS
#define LINGERS(s) 1
#define NO_REQUEST_STALLS 1
#else
/*
 * What a request refers to is seen to be there right before it leaves. It is not under way for so long that a cleaner
 * takes it meanwhile; no client can see to that, for no request asserts that a file exists.
 */
#define LINGERS(s) !HAS(older, s)
#define NO_REQUEST_STALLS (!HAS(old, lateS[0]) && !HAS(old, lateS[1]))
#endif
#define LATE_ROOM ((lateS[0] == 0 || lateS[1] == 0) && LINGERS(s))

inline keep(s_, h_, t_, l_) {
  if
  :: lateS[0] == 0 -> lateS[0] = s_; lateH[0] = h_; lateT[0] = t_; KEEP_LOCATED(0, l_)
  :: lateS[0] != 0 -> assert(lateS[1] == 0); lateS[1] = s_; lateH[1] = h_; lateT[1] = t_; KEEP_LOCATED(1, l_)
  fi
}

inline forget_look() { ok = 0; rule = 0; reason = 0; verdict = 0; at = 0; walk = 0; oldest = 0; newest = 0; shown = 0; led = 0; gone = 0; complete = 0 }

/* ---- Spark, and the rules that a driver can be without -------------------------------------------------------------- */

inline start_of(n_) {
  if :: n_ == 0 -> b = origin :: else -> b = cv[n_ - 1] fi
}

/* Spark writes offsets/<n>: what it wrote before, or something else if it has to plan the batch anew. */
inline plan() {
  start_of(n);
  if
  :: mv[n] != 0 && ms[n] == b -> cv[n] = mv[n]
  :: mv[n] == 0 || restores != RESTORES || mends != MENDS || renewals != RENEWALS ->
     assert(tokens < TOKENS);
     cv[n] = tokens; tokens++; mv[n] = cv[n]; ms[n] = b
  fi;
  off = n + 1
}

inline new_number() { assert(next <= SNAPSHOTS); s = next; next++ }

/* Decision 0059: a turn lasts from the look to the answer. Nothing but the order of the attempts depends on it. */
#if TURNS > 0
byte turn;                       /* the driver whose turn it is */
#define TAKE_TURN (turn == 0 || turn == me || TURNS == 2); \
  if :: turn == 0 -> turn = me :: turn != 0 || TURNS == 2 -> skip fi
#define END_TURN if :: turn == me -> turn = 0 :: else fi
#else
#define TAKE_TURN skip
#define END_TURN skip
#endif
#ifdef TURN_OUTLIVES
#define LEAVE_TURN if :: turn == me -> turn = DRIVERS + 1 :: else fi
#else
#define LEAVE_TURN skip
#endif

inline calm() { hold[me - 1] = 0; slow[me - 1] = 0; list[me - 1] = 0; FORGET_LOCATED(); END_TURN }

inline fall() { n = 0; v = 0; b = 0; s = 0; hh = 0; tt = 0; att = 0; wr = 0; e0 = 0; calm(); up-- }

#ifdef ABORT_DELETES
#define CLEAN_UP() if :: s != 0 -> alive = alive & ~BIT(s); MUST((sn[head].cont & ~alive) == 0, COMMITTED_FILES_DELETED) :: else fi
#else
#define CLEAN_UP() skip
#endif

#ifdef REUSED_NAMES
inline OVERWRITES() { /* files are named by their batch: an earlier attempt's are overwritten */
  i = 1;
  do
  :: i < s ->
     MUST(!(HAS(sn[head].cont, i) && sn[i].bat == n && sn[i].qry == qid), COMMITTED_FILES_OVERWRITTEN);
     i++
  :: else -> break
  od;
  i = 0
}
#else
#define OVERWRITES() skip
#endif
#ifdef CHECK_OUTSIDE
#define DECIDED_BEFORE() verdict = COMMIT
#else
#define DECIDED_BEFORE() skip
#endif

#ifdef NO_RESTART
#define STARTED_AGAIN (crashes == CRASHES)
#else
#define STARTED_AGAIN 1
#endif

#define WRITES 2
#define PERSON_WAITS (mends + restores + renewals > 0)

/* A refusal needs a reason: a person's doing, or that another driver has committed the batch meanwhile. */
#define REFUSAL_IS_RIGHT (odd || com > n)

#ifdef NO_FOLLOWS
#define FOLLOWS(s, e) 1
#define STILL_FOLLOWS(s, e) 1
#elif defined(NO_FOLLOWS_IN_ATTEMPTS)
#define FOLLOWS(s, e) (sn[s].fol == (e))
#define STILL_FOLLOWS(s, e) 1
#else
#define FOLLOWS(s, e) (sn[s].fol == (e))
#define STILL_FOLLOWS(s, e) (sn[s].fol == (e))
#endif
#ifdef NO_EXISTENCE_CHECK
#define EXIST(s) 1
#else
#define EXIST(s) HAS(alive, s)
#endif
#ifdef NO_AGE_LIMIT
#define YOUNG(s) 1
#else
#define YOUNG(s) !HAS(old, s)
#endif
#ifdef TORN_BELIEVED
#define WHOLE(s) 1
#else
#define WHOLE(s) !HAS(torn, s)
#endif
#ifdef ANY_SNAPSHOT_ID
#define NOT_THERE(s) 1
#else
#define NOT_THERE(s) !HAS(inmeta, s)
#endif

#ifdef CHECK_OUTSIDE
#define STILL_USABLE 1
#else
#define STILL_USABLE (STILL_FOLLOWS(s, led) && NOT_THERE(s))
#endif

#define RECORDED_HERE (rec[v] != 0 && sn[rec[v]].bat == n && sn[rec[v]].qry == qid && WHOLE(rec[v]) && YOUNG(rec[v]) \
  && FOLLOWS(rec[v], e0) && NOT_THERE(rec[v]) && EXIST(rec[v]))


/* ---- a driver ----------------------------------------------------------------------------------------------------- */

inline make() { /* the rows of the batch in files of their own, closed, and their manifests */
  new_number(); hold[me - 1] = s;
  sn[s].bat = n; sn[s].qry = qid; sn[s].st = b; sn[s].ver = v; sn[s].fol = e0;
  alive = alive | BIT(s);
  OVERWRITES();
  LOCATE()
}

inline look_again() { hh = head; tt = tag; list[me - 1] = 0; ok = STILL_USABLE; LOCATE_AGAIN() }

/* A look that shows the batch. (Macros, for spin does not put an inline's argument into C code.) */
#define FIND(f) \
  OWN(1); LOOKS(f, LOOK_SKIP, FOUND); \
  if \
  :: (shown != 0 && shown == s) || (shown == 0 && led == s) -> STEP(FOUND, COMMITTED, IDLE) \
  :: else -> STEP(FOUND, KNOWN, IDLE) \
  fi; \
  forget_look(); \
  must_be_in_table()

#define BAR(f) LOOKS(f, LOOK_REFUSE, BARRED); STEP(BARRED, REFUSED, ENDED)

inline succeed() {
  OWN(1); END_TURN; STEP(SENT, ANSWER_LANDED, LANDED); STEP(LANDED, COMMITTED, IDLE);
  must_be_in_table()
}

inline bar(f) { LOOKS(f, LOOK_REFUSE, BARRED); STEP(BARRED, REFUSED, ENDED) }

inline refuse() {
  MUST(REFUSAL_IS_RIGHT, WRONG_REFUSAL);
  CLEAN_UP();
  if :: com <= n -> halt = 1 :: else fi;
  forget_look(); fall()
}

#define FAULT faults > 0 -> faults--
#define CRASH crashes > 0 -> crashes--

/* Decision 0016: right before a request is sent, old files are looked for, and one held up too long sends nothing. */
#ifdef NO_AGE_IN_ATTEMPTS
#define MISSING 0
#else
#define MISSING (HAS(old, s) && !HAS(alive, s))
#endif
#ifdef HELD_UP_SENDS
#define HELD_UP 0
#else
#define HELD_UP (slow[me - 1] > 0)
#endif
#define SENDS !MISSING && !HELD_UP
#define TRIES STEP(LOOKED, ATTEMPT, SENT); att++; MUST(list[me - 1] < 2, FILES_GONE)
#define DIES printf("@ %d dies\n", me); LEAVE_TURN; fall()
#define UNANSWERED END_TURN; STEP(SENT, ANSWER_UNKNOWN, UNSURE)

proctype Driver(byte me) {
  byte n, v, b, s;      /* the batch: id, where it ends, where it starts; what is prepared for it */
  byte hh, tt;          /* head and tag as last looked at */
  byte e0;              /* the ledger entry when the batch began */
  byte att, wr;         /* attempts; times that the batch was written */

end_down:
  atomic {
    !halt && com < BATCHES && STARTED_AGAIN;
    up++;
    printf("@ %d starts\n", me);
    if
    :: off > com -> n = off - 1
    :: else -> n = com; plan()
    fi
  }

begin:
  if
  :: atomic {
       OWN(0); wr++; v = cv[n]; start_of(n); e0 = 0; s = 0;
       decide();
#ifdef NO_SKIP_BEFORE_WRITING
       if :: verdict == SKIP -> verdict = COMMIT :: else fi;
#endif
       if
       :: verdict == COMMIT -> LOOKS(IDLE, BEGIN_COMMIT, BEGUN); e0 = led; forget_look()
       :: verdict == SKIP -> LOOKS(IDLE, BEGIN_SKIP, IDLE); forget_look(); must_be_in_table(); goto finish
       :: verdict == REFUSE -> LOOKS(IDLE, BEGIN_REFUSE, ENDED); refuse(); goto end_down
       fi
     }
  :: atomic { CRASH; DIES; goto end_down }
  fi;

  if /* what an earlier driver prepared, or the job */
  :: atomic { RECORDED_HERE -> s = rec[v]; hold[me - 1] = s; STEP(BEGUN, RECOVERED, READY); slow[me - 1] = 0; LOCATE(); goto FIRST }
  :: atomic { !RECORDED_HERE -> make(); STEP(BEGUN, PREPARED, VOTED) }
  :: atomic { !RECORDED_HERE && faults > 0 -> faults--; /* a vote is missing, or the storage failed */
#ifdef ABSENCE_IS_A_VOTE
       make(); partial = partial | BIT(s); STEP(BEGUN, PREPARED, VOTED)
#else
       STEP(BEGUN, ABORTED, ENDED); fall(); goto end_down
#endif
     }
  :: atomic { CRASH; DIES; goto end_down }
  fi;

  if /* the record */
  :: atomic { rec[v] = s; torn = torn & ~BIT(s); STEP(VOTED, RECORDED, READY); slow[me - 1] = 0 }
  :: atomic { FAULT; if :: rec[v] = s :: skip fi; STEP(VOTED, ABORTED, ENDED); CLEAN_UP(); fall(); goto end_down }
  :: atomic { CRASH; rec[v] = s; torn = torn | BIT(s); DIES; goto end_down }
  :: atomic { CRASH; DIES; goto end_down }
  fi;

#if LETTERS > 0 && !defined(TABLE_FIRST)
beside:
  if
  :: atomic { printf("@ %d logs %d\n", me, n); tell(logs) }
  :: atomic { CRASH; DIES; goto end_down }
  fi;
  if
  :: atomic { printf("@ %d puts_aside %d\n", me, n); tell(lets) }
  :: atomic { CRASH; DIES; goto end_down }
  fi;
#endif

ready:
  if
  :: atomic { FAULT; STEP(READY, ANSWER_UNKNOWN, UNSURE); att++; goto unsure } /* the load failed */
  :: atomic { CRASH; TOOK(READY, FAILED, ENDED); DIES; goto end_down }
  :: atomic {
       TAKE_TURN;
       decide();
       DECIDED_BEFORE();
       if
       :: verdict == COMMIT -> LOOKS(READY, LOOK_COMMIT, LOOKED); look_again()
       :: verdict == SKIP -> FIND(READY); goto finish
       :: verdict == REFUSE -> BAR(READY); refuse(); goto end_down
       fi;
       if :: ok -> forget_look(); goto looked :: else -> forget_look(); goto again fi
     }
  fi;

looked:
  if
  :: atomic { FAULT; END_TURN; STEP(LOOKED, ANSWER_UNKNOWN, UNSURE); att++; goto unsure } /* the request could not be built */
  :: atomic { CRASH; TOOK(LOOKED, FAILED, ENDED); DIES; goto end_down }
  :: atomic { MISSING -> goto again }
  :: atomic { /* a last look, and no more */
       !MISSING && HELD_UP ->
       decide();
       if
       :: verdict == COMMIT -> LOOKS(LOOKED, LOOK_COMMIT, LOOKED); STEP(LOOKED, UNRESOLVED, ENDED); forget_look(); fall(); goto end_down
       :: verdict == SKIP -> FIND(LOOKED); goto finish
       :: verdict == REFUSE -> BAR(LOOKED); refuse(); goto end_down
       fi
     }
  :: atomic { /* applied or not, and answered; a conflict proves nothing, for our first try may have landed */
       SENDS -> TRIES; apply(s, hh, tt, LOCATED);
       if
       :: ok -> ok = 0; succeed(); goto finish
       :: else -> UNANSWERED; goto unsure
       fi
     }
  :: atomic { SENDS && faults > 0 -> faults--; TRIES; apply(s, hh, tt, LOCATED); ok = 0; UNANSWERED; goto mute } /* lost answer */
  :: atomic { SENDS && faults > 0 -> faults--; TRIES; UNANSWERED; goto mute } /* lost request */
  :: atomic { SENDS && faults > 0 && LATE_ROOM -> faults--; TRIES; keep(s, hh, tt, LOCATED); UNANSWERED; goto mute }
  :: atomic { /* delivered twice: now, and once more whenever it likes */
       SENDS && faults > 0 && LATE_ROOM -> faults--; TRIES; keep(s, hh, tt, LOCATED); apply(s, hh, tt, LOCATED);
       if
       :: ok -> ok = 0; succeed(); goto finish
       :: else -> UNANSWERED; goto unsure
       fi
     }
  :: atomic { /* the catalog says yes, and has done nothing */
       SENDS && faults > 0 -> faults--; TRIES;
#ifdef NO_READ_BACK
       succeed(); goto finish
#else
       END_TURN; STEP(SENT, ANSWER_NOT_SHOWN, UNSURE); goto unsure
#endif
     }
  :: atomic { SENDS && crashes > 0 -> crashes--; TRIES; apply(s, hh, tt, LOCATED); ok = 0; TOOK(SENT, FAILED, ENDED); DIES; goto end_down }
  :: atomic { SENDS && crashes > 0 && LATE_ROOM -> crashes--; TRIES; keep(s, hh, tt, LOCATED); DIES; goto end_down }
  fi;

mute: /* no answer came */
#ifdef UNKNOWN_IS_LANDED
  atomic { succeed(); goto finish };
#endif
#ifdef UNKNOWN_IS_REJECTED
  atomic {
    if
    :: att < ATTEMPTS -> decide(); LOOKS(UNSURE, LOOK_COMMIT, LOOKED); hh = head; tt = tag; forget_look(); goto looked
    :: else -> skip
    fi
  };
#endif

unsure:
  if
  :: atomic { FAULT;
       if
       :: att < ATTEMPTS -> STEP(UNSURE, ANSWER_UNKNOWN, UNSURE); att++; goto unsure
       :: else -> STEP(UNSURE, UNRESOLVED, ENDED); CLEAN_UP(); fall(); goto end_down
       fi
     }
  :: atomic { CRASH; TOOK(UNSURE, FAILED, ENDED); DIES; goto end_down }
  :: atomic {
       TAKE_TURN;
       decide();
       DECIDED_BEFORE();
       if
       :: verdict == COMMIT -> LOOKS(UNSURE, LOOK_COMMIT, LOOKED); look_again()
       :: verdict == SKIP -> FIND(UNSURE); goto finish
       :: verdict == REFUSE -> BAR(UNSURE); refuse(); goto end_down
       fi;
       if
       :: att >= ATTEMPTS -> /* it was the last look */
          forget_look(); STEP(LOOKED, UNRESOLVED, ENDED); CLEAN_UP(); fall(); goto end_down
       :: att < ATTEMPTS && ok -> forget_look(); goto looked
       :: att < ATTEMPTS && !ok -> forget_look(); goto again
       fi
     }
  fi;

again:
  atomic {
    STEP(LOOKED, AGAIN, IDLE); att = 0; s = 0; hh = 0; tt = 0; calm();
    if :: wr < WRITES -> goto begin :: else -> fall(); goto end_down fi
  };

finish: /* Spark's commits/<n>, and offsets/<n+1>; who finds there what it is about to write has a rival, and stops */
  if
  :: atomic {
       calm(); s = 0; hh = 0; tt = 0; att = 0; wr = 0; e0 = 0; v = 0;
       tell_after();
       if
       :: com != n -> goto out
       :: com == n -> must_be_told(); com = n + 1; n = com
       fi;
       if
       :: com == BATCHES || PERSON_WAITS -> fall(); goto end_down
       :: com < BATCHES && off > n -> goto out
       :: com < BATCHES && off <= n -> plan(); goto begin
       fi
     }
  :: atomic { CRASH; DIES; goto end_down }
  fi;

out:
  atomic { printf("@ %d stops\n", me); fall() }
}

/* ---- the others --------------------------------------------------------------------------------------------------- */

inline deliver(k) {
  s = lateS[k];
  printf("@ 0 arrives %d 0\n", s);
  apply(lateS[k], lateH[k], lateT[k], LATE_LOCATED(k));
  lateS[k] = 0; lateH[k] = 0; lateT[k] = 0; KEEP_LOCATED(k, 0); s = 0; ok = 0
}

proctype Network() {
  byte s;
end_network:
  do
  :: atomic { lateS[0] != 0 -> deliver(0) }
  :: atomic { lateS[1] != 0 -> deliver(1) }
  od
}

inline add_foreign() {
  new_number();
  sn[s].bat = BEING_FOREIGN; sn[s].par = head; seqs++; sn[s].seq = seqs;
  sn[s].cont = sn[head].cont; sn[s].top = sn[head].top;
  keep_rows(s, head);
  inmeta = inmeta | BIT(s); head = s
}

proctype Foreign() {
  byte s;
end_foreign:
  do
  :: atomic {
       foreign > 0 -> foreign--;
       add_foreign();
       printf("@ 0 foreign %d 0\n", s); s = 0
     }
  od
}

#if COMPACTIONS > 0
/*
 * Another writer's rewrite of the files with rows, by Iceberg's rules: it is refused if its base is no ancestor of the head,
 * or if a snapshot in between has removed rows of those files. A snapshot of operation `append` is not asked.
 */
#ifdef AS_APPEND
#define ROWS_REMOVED 0
#else
#define ROWS_REMOVED ((rows[head].livea & swept) != rows[base].livea || (rows[head].liveb & swept) != rows[base].liveb)
#endif

inline rewrite() {
  add_foreign();
  rows[s].livea = rows[s].livea & ~swept; rows[s].liveb = rows[s].liveb & ~swept;
  if :: rows[base].livea != 0 -> rows[s].ina = rows[base].nowa; rows[s].livea = rows[s].livea | BIT(s) :: else fi;
  if :: rows[base].liveb != 0 -> rows[s].inb = rows[base].nowb; rows[s].liveb = rows[s].liveb | BIT(s) :: else fi;
  printf("@ 0 rewrites %d 0\n", s); s = 0;
  must_be_one_row_a_key()
}

proctype Compaction() {
  byte s, base;
end_compaction:
  do
  :: atomic {
       compactions > 0 && base == 0 && (rows[head].livea | rows[head].liveb) != 0 ->
       compactions--; base = head;
       printf("@ 0 compacts %d 0\n", base)
     }
  :: atomic {
       base != 0 ->
       at = head; walk = 0;
       do
       :: HAS(inmeta, at) -> walk = walk | BIT(at); at = sn[at].par
       :: else -> break
       od;
       swept = rows[base].livea | rows[base].liveb;
       if
       :: HAS(walk, base) && !ROWS_REMOVED -> rewrite()
       :: else -> printf("@ 0 gives_up %d 0\n", base)
       fi;
       base = 0; at = 0; walk = 0; swept = 0
     }
  od
}
#endif

#if LETTERS > 0
#define OF_A 3
#define OF_B 12                  /* upserts of B */
#define OF_DELETE 16
#define LANDED_CHANGES (entry == 0 -> 0 : (sn[entry].bat == 0 -> 5 : (sn[entry].bat == 1 -> 15 : 31)))
#define LETTERS_THERE (aside & ((lets & 1) * 5 | ((lets >> 1) & 1) * 10 | ((lets >> 2) & 1) * 16))
#define PENDING (LETTERS_THERE & LANDED_CHANGES & ~(assigned[1] | assigned[2] | assigned[3]))
#ifdef BRINGS_BACK
#define REPAIRED PENDING
#define WITHOUT_ROW 1
#else
/* A replay that would insert B is refused, and the repair leaves it out. A is new, and the operator says so. */
#define REPAIRED (PENDING & (rows[head].liveb == 0 -> ~OF_B : 31))
#define WITHOUT_ROW 0
#endif
#ifdef REPLAYS_UNORDERED
#define OLDER(q, than) 1
#else
#define OLDER(q, than) ((q) < (than))
#endif
#define SEQUENCE_OF_A ((c & 2) >> 1)
#define SEQUENCE_OF_B ((c & 8) >> 3)

/* Who wrote the live row of a key; 0 if it has none. */
#define WRITER(live, in) \
  w = 0; i = 1; \
  do \
  :: i < next -> if :: HAS(rows[head].live, i) -> w = rows[i].in :: else fi; i++ \
  :: else -> break \
  od; \
  i = 0

#define ASSIGNS assigned[r] = c; printf("@ 0 assigns %d 0\n", r)
#ifdef ASSIGNED_AFTER
#define ASSIGNED_LATER 1
#define ASSIGN skip
#define ASSIGN_AFTER ASSIGNS
#else
#define ASSIGNED_LATER 0
#define ASSIGN ASSIGNS
#define ASSIGN_AFTER skip
#endif

/* The rows of replay r: an older row is replaced, a newer one stays. Each time the oracle's own row comes last. */
inline redo() {
  printf("@ 0 replays %d %d\n", r, next);
  MUST(assigned[r] == c || ASSIGNED_LATER, LETTER_NOT_REPLAYED);
  MUST((replayed & c) == 0, LETTER_TWICE);
  replayed = replayed | c; redone = r;
  h = head; add_foreign();
  head = h;
  WRITER(livea, ina);
  if
  :: (c & OF_A) && (w == 0 || OLDER(rows[w].qa, SEQUENCE_OF_A)) -> rows[s].livea = BIT(s); rows[s].ina = s
  :: else
  fi;
  if
  :: (c & OF_A) && (rows[h].nowa == 0 || rows[rows[h].nowa].qa < SEQUENCE_OF_A) -> rows[s].nowa = s
  :: else
  fi;
  WRITER(liveb, inb);
  if
  :: c & OF_DELETE -> rows[s].liveb = 0; rows[s].nowb = 0; rows[s].ended = 1
  :: !(c & OF_DELETE) && (c & OF_B) ->
     if
     :: (w == 0 -> WITHOUT_ROW : OLDER(rows[w].qb, SEQUENCE_OF_B)) -> rows[s].liveb = BIT(s); rows[s].inb = s
     :: else
     fi;
     if
     :: !rows[h].ended && rows[h].nowb != 0 && rows[rows[h].nowb].qb < SEQUENCE_OF_B -> rows[s].nowb = s
     :: else
     fi
  :: else
  fi;
  SET_SEQUENCES(s, SEQUENCE_OF_A, SEQUENCE_OF_B);
  head = s; w = 0; s = 0; h = 0;
  must_be_one_row_a_key()
}

/*
 * Dead letters of batches that the table has. They are assigned to a replay, and then their rows land as its version: so a
 * replay that was begun has its letters, whoever goes on with it. If the row of one is deleted meanwhile, the operator
 * returns a delete for it: nothing is brought back.
 */
#ifdef RIVALS_ASSIGN
#define IS_ASSIGNED(r) 0
#else
#define IS_ASSIGNED(r) (assigned[r] != 0)
#endif
#define RESTS c = 0; r = 0; h = 0; goto end_replayer

proctype Replayer() {
  byte s, h, w, c, r;

end_replayer:
  atomic {
    if
    :: assigned[redone + 1] != 0 -> r = redone + 1; c = assigned[r]; printf("@ 0 goes_on %d 0\n", r); goto begun
    :: assigned[redone + 1] == 0 && REPAIRED != 0 -> r = redone + 1; c = REPAIRED; printf("@ 0 repairs %d 0\n", r)
    fi
  };
  if
  :: atomic { IS_ASSIGNED(r) || redone >= r -> RESTS } /* another was quicker */
  :: atomic { !IS_ASSIGNED(r) && redone < r -> ASSIGN }
  :: atomic { CRASH; printf("@ 0 replay_dies %d 0\n", r); RESTS }
  fi;

begun:
  if
  :: atomic { redone >= r -> RESTS }
  :: atomic { redone < r -> h = head }
  :: atomic { CRASH; printf("@ 0 replay_dies %d 0\n", r); RESTS }
  fi;
  if
  :: atomic { head == h && redone < r -> redo() }
  :: atomic { head != h || redone >= r -> h = 0; goto begun }
  :: atomic { CRASH; printf("@ 0 replay_dies %d 0\n", r); RESTS }
  fi;
  if
  :: atomic { ASSIGN_AFTER; RESTS }
  :: atomic { CRASH; printf("@ 0 replay_dies %d 0\n", r); RESTS }
  fi
}
#endif

/* Files that no retained snapshot holds any more go with the one that is expired. */
inline drop_files(s_) {
  walk = 0; i = 1;
  do
  :: i < next -> if :: HAS(inmeta, i) -> walk = walk | sn[i].cont :: else fi; i++
  :: else -> break
  od;
  alive = alive & ~(sn[s_].cont & ~walk);
  walk = 0; i = 0
}

/* No branch and no tag points at it. */
#define GOES(s) (HAS(inmeta, s) && head != s && tag != s)

proctype Expirer() {
  byte s;
end_expirer:
  do
  :: atomic {
       expire > 0 && (GOES(1) || GOES(2) || GOES(3) || GOES(4) || GOES(5) || GOES(6)
         || GOES(7) || GOES(8) || GOES(9) || GOES(10) || GOES(11) || GOES(12)) ->
       expire--;
       if
       :: GOES(1) -> s = 1 :: GOES(2) -> s = 2 :: GOES(3) -> s = 3 :: GOES(4) -> s = 4
       :: GOES(5) -> s = 5 :: GOES(6) -> s = 6 :: GOES(7) -> s = 7 :: GOES(8) -> s = 8
       :: GOES(9) -> s = 9 :: GOES(10) -> s = 10 :: GOES(11) -> s = 11 :: GOES(12) -> s = 12
       fi;
       inmeta = inmeta & ~BIT(s);
       drop_files(s);
       if /* after a rollback, and before the replay, with a mark goes what the replay is known by */
       :: !HAS(sn[head].cont, entry) && sn[s].bat != BEING_FOREIGN -> odd = 1
       :: else
       fi;
       printf("@ 0 expires %d 0\n", s); s = 0
     }
  od
}

/* What is under way may land after all, and then the table is not as a person saw it. */
#define UNDER_WAY (lateS[0] != 0 || lateS[1] != 0)

#define PASSES(d) \
  if :: hold[d] != 0 && slow[d] < 2 -> slow[d]++ :: else fi; \
  if :: hold[d] != 0 && list[d] < 2 -> list[d]++ :: else fi

/* A cleaner takes files that are in no retained snapshot. */
inline clean(candidates) {
  walk = 0; i = 1;
  do
  :: i < next -> if :: HAS(inmeta, i) -> walk = walk | sn[i].cont :: else fi; i++
  :: else -> break
  od;
  swept = candidates & alive & ~walk;
  if :: swept != 0 -> alive = alive & ~swept; printf("@ 0 cleans %d 0\n", swept) :: else fi;
  walk = 0; i = 0; swept = 0
}

proctype Time() {
end_time:
  do
  :: atomic {
       ages > 0 && NO_REQUEST_STALLS ->
       ages--; older = older | old; old = old | alive;
       PASSES(0);
#if DRIVERS == 2
       PASSES(1);
#endif
       printf("@ 0 ages 0 0\n")
     }
  :: atomic { (older & alive) != 0 -> clean(older); older = 0 }
  :: atomic { hasty > 0 && up == 0 && !UNDER_WAY && alive != 0 -> hasty--; clean(alive) }
  od
}

#define RETURNS_TO(s) (head != s && HAS(inmeta, s) && sn[s].bat != BEING_FOREIGN)

proctype Person() {
  byte n, v, s;
end_person:
  do
  :: atomic { /* back to a snapshot under the head */
       rollbacks > 0 && head != 0 && HAS(inmeta, sn[head].par) ->
       rollbacks--; odd = 1;
       head = sn[head].par;
       do
       :: HAS(inmeta, sn[head].par) -> head = sn[head].par
       :: break
       od;
       printf("@ 0 rollback %d 0\n", head)
     }
  :: atomic { /* the operating rule: the stream stopped, commits/ and offsets/ above M deleted, started again */
       mends > 0 && odd && up == 0 && rollbacks != ROLLBACKS ->
       mends--;
       survey();
       if
       :: newest != 0 && sn[newest].qry == qid && sn[newest].bat < off && cv[sn[newest].bat] == sn[newest].ver ->
          com = sn[newest].bat + 1; off = com; halt = 0; odd = UNDER_WAY; printf("@ 0 mends %d 0\n", com)
       :: newest == 0 && complete && origin == 0 -> com = 0; off = 0; halt = 0; odd = UNDER_WAY; printf("@ 0 mends %d 0\n", com)
       :: else
       fi;
       forget_look()
     }
  :: atomic { /* the catalog restored from a backup */
       returns > 0 && (RETURNS_TO(1) || RETURNS_TO(2)) ->
       returns--; odd = 1;
       if :: RETURNS_TO(1) -> s = 1 :: RETURNS_TO(2) -> s = 2 fi;
       head = s; entry = s; tag = s; seqs = sn[s].seq;
       i = 1;
       do
       :: i < next -> if :: sn[i].seq > seqs -> inmeta = inmeta & ~BIT(i) :: else fi; i++
       :: else -> break
       od;
       i = 0;
       printf("@ 0 returns %d 0\n", s); s = 0
     }
  :: atomic { /* an older checkpoint, as it was at any time */
       restores > 0 && up == 0 && off > 0 ->
       restores--; odd = 1; halt = 0;
       do
       :: off > com -> off--; break
       :: com > 0 -> com--; if :: off = com :: off > com + 1 -> off = com + 1 :: off == com + 1 fi
       :: break
       od;
       if /* it may be from before the stream was mended, and then tell another story of its newest batch */
       :: com > 0 && off == com && tokens < TOKENS -> cv[com - 1] = tokens; tokens++
       :: skip
       fi;
       printf("@ 0 restores %d %d\n", off, com)
     }
  :: atomic { /* a new checkpoint, from the source's beginning or from where the ledger ends */
       renewals > 0 && up == 0 && off > 0 ->
       renewals--; halt = 0; off = 0; com = 0; qid++;
       if
       :: origin = 0; odd = 1
       :: entry != 0 -> origin = sn[entry].ver; odd = (rollbacks != ROLLBACKS || UNDER_WAY)
       fi;
       n = 0;
       do :: n < BATCHES -> mv[n] = 0; ms[n] = 0; cv[n] = 0; n++ :: else -> break od;
       n = 0;
       printf("@ 0 renews %d %d\n", qid, origin)
     }
  od
}

init {
  atomic {
    sn[0].bat = BEING_FOREIGN;
    run Driver(1);
#if DRIVERS == 2
    run Driver(2);
#endif
#if FAULTS > 0 || CRASHES > 0
    run Network();
#endif
#if FOREIGN > 0
    run Foreign();
#endif
#if COMPACTIONS > 0
    run Compaction();
#endif
#if LETTERS > 0
    if :: aside = 1 :: aside = 8 :: aside = 9 :: aside = 16 :: aside = 18 fi;
    run Replayer();
#if REPLAYERS == 2
    run Replayer();
#endif
#endif
#if EXPIRE > 0
    run Expirer();
#endif
#if AGES > 0 || HASTY > 0
    run Time();
#endif
#if ROLLBACKS > 0 || RESTORES > 0 || RENEWALS > 0 || RETURNS > 0
    run Person();
#endif
  }
}

/* When the faults stop, the run ends, or has stopped with a refusal that a person must hear. */
#ifdef LIVENESS
ltl ends_or_says { <> (com == BATCHES || halt) }
#endif
