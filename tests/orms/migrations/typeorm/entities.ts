import { Column, Entity, JoinTable, ManyToMany, ManyToOne, OneToMany, PrimaryGeneratedColumn, type Relation } from "typeorm";

@Entity()
export class Author {
  @PrimaryGeneratedColumn({ type: "bigint" })
  id!: string;

  @Column("text")
  name!: string;

  @OneToMany("Book", "author", { cascade: true })
  books!: Relation<Book>[];
}

@Entity()
export class Tag {
  @PrimaryGeneratedColumn("identity", { type: "bigint" })
  id!: string;

  @Column("text", { unique: true })
  name!: string;
}

@Entity()
export class Book {
  @PrimaryGeneratedColumn({ type: "bigint" })
  id!: string;

  @Column("text")
  title!: string;

  @ManyToOne("Author", "books")
  author!: Relation<Author>;

  @ManyToMany(() => Tag)
  @JoinTable()
  tags!: Tag[];
}
